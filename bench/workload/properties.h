// Java properties, as YCSB's workload files and its option -p have them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace verbena::bench {

// Properties by name. A value type.
class Properties {
 public:
  struct Entry {
    std::string value;
    std::string from;  // for messages: "workloads/workloada: line 3", "-p threadcount=x"
  };

  // Adds those of a text in the form of java.util.Properties: comments begin with # or !; a line
  // that ends with an odd number of backslashes goes on in the next; '=', ':' or blanks end the
  // name; \t, \n, \r, \f, \uXXXX and \ before any other character are that character. Later ones
  // win. InvalidArgument names `source` and the line.
  absl::Status AddText(std::string_view text, const std::string& source);
  // The same from a file. InvalidArgument also where it cannot be read.
  absl::Status AddFile(const std::string& path);
  // "name=value"; wins over what files say, whatever the order. InvalidArgument without a name or a
  // '='.
  absl::Status AddAssignment(std::string_view text);

  bool empty() const { return entries_.empty() && !asked_for_; }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  const Entry* Find(const std::string& name) const;

 private:
  std::map<std::string, Entry> entries_;
  bool asked_for_ = false;  // also where the files are empty
};

// Takes -P FILE and -p name=value out of a command line (up to "--") and leaves the rest in `args`.
// InvalidArgument as above, or where there is nothing behind one.
absl::StatusOr<Properties> TakeProperties(std::vector<std::string>* args);

// The name of `known` that is nearest to `name`, by the fewest letters that were left out, put in,
// replaced or exchanged with their neighbour; case does not count. `known` is not empty.
std::string_view NearestName(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace verbena::bench

// The sizes of values: one for all, or drawn anew for every write.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/workload/size_models.h"
#include "bench/workload/zipfian.h"

namespace verbena::bench {

// A distribution of sizes. A value type that is cheap to copy; thread-safe. Sizes are at most
// `kMaxSize`.
class Sizes {
 public:
  static constexpr uint64_t kMaxSize = uint64_t{1} << 30;
  // What Parse takes, for messages and help texts.
  static constexpr std::string_view kForms =
      "a size from 1B to 1GiB, uniform:MIN-MAX, list:SIZE:WEIGHT,..., file:FILE, etc, udb, "
      "zippydb, "
      "up2x, kvcache, graph, assocs or cdn";

  // All of `size` bytes.
  // NOLINTNEXTLINE(google-explicit-constructor): a size is the simplest distribution
  Sizes(uint64_t size = 100);

  // InvalidArgument says which part of `text` is wrong and what is allowed.
  static absl::StatusOr<Sizes> Parse(std::string_view text);
  // From `least` to `most` bytes, all as likely; 0 < least <= most.
  static Sizes Uniform(uint64_t least, uint64_t most);
  // The same range, but small ones are the likeliest, as YCSB's fieldlengthdistribution=zipfian.
  static Sizes SmallFirst(uint64_t least, uint64_t most);
  static Sizes Model(SizeModel model);
  // A histogram: lines of a size and how many there are, between blanks or a comma. YCSB's file
  // form too: after a first line "BlockSize N" the sizes are numbers of blocks less one.
  // InvalidArgument names file, line and reason.
  static absl::StatusOr<Sizes> FromHistogram(const std::string& path);

  // Whether Parse would take `text` as a list; and the sizes of a list or a file as such a text
  // (empty for others).
  static bool IsList(std::string_view text) { return text.substr(0, 5) == "list:"; }
  std::string ListText() const;

  // Whether all are of one size; then that is Mean().
  bool constant() const { return kind_ == Kind::kConstant; }
  uint64_t Mean() const { return mean_; }  // rounded, at least 1 where not all are 0
  const std::string& name() const { return name_; }

  // The size for a uniform number in [0, 1).
  uint64_t At(double u) const;
  // The size that belongs to a number: the same for the same one.
  uint64_t Of(uint64_t number) const;

 private:
  enum class Kind { kConstant, kUniform, kSmallFirst, kModel, kTable };
  struct Table {
    std::vector<uint64_t> sizes;
    std::vector<double> below;  // of [0, 1): up to here it is this size; the last is 1
  };

  static absl::StatusOr<Sizes> FromWeights(std::vector<uint64_t> sizes,
                                           std::vector<double> weights);
  static absl::StatusOr<Sizes> ParseList(std::string_view list);
  static absl::StatusOr<Sizes> ParseUniform(std::string_view range);
  void SetMean();

  Kind kind_ = Kind::kConstant;
  uint64_t least_ = 0;
  uint64_t most_ = 0;
  SizeModel model_ = SizeModel::kEtc;
  std::shared_ptr<const Table> table_;
  std::optional<Zipfian> ranks_;
  uint64_t mean_ = 0;
  std::string name_;
};

}  // namespace verbena::bench

// Traces for tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

namespace verbena::bench {

// A file that is there as long as this.
class TraceFile {
 public:
  explicit TraceFile(std::string_view text)
      : path_(::testing::TempDir() + "/trace_" + std::to_string(getpid()) + "_" +
              std::to_string(++made_) + ".csv") {
    std::ofstream(path_, std::ios::binary) << text;
  }
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  ~TraceFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  static inline int made_ = 0;
  const std::string path_;
};

}  // namespace verbena::bench

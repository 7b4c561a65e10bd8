#include "bench/workload/sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace verbena::bench {
namespace {

using ::testing::HasSubstr;

// What the sizes of 200,000 numbers are like.
struct SizeFigures {
  double mean = 0;
  double deviation = 0;
  std::vector<uint64_t> sorted;

  double Quantile(double part) const {
    return static_cast<double>(sorted[static_cast<size_t>(part * double(sorted.size()))]);
  }
};

template <typename Draw>
SizeFigures FiguresOf(Draw draw) {
  constexpr int kSamples = 200'000;
  SizeFigures figures;
  double squares = 0;
  for (int i = 0; i < kSamples; ++i) {
    const uint64_t size = draw((i + 0.5) / kSamples);
    figures.sorted.push_back(size);
    figures.mean += static_cast<double>(size) / kSamples;
    squares += static_cast<double>(size) * static_cast<double>(size) / kSamples;
  }
  figures.deviation = std::sqrt(squares - figures.mean * figures.mean);
  std::sort(figures.sorted.begin(), figures.sorted.end());
  return figures;
}

SizeFigures ValuesOf(SizeModel model) {
  return FiguresOf([model](double u) { return ValueSize(model, u); });
}
SizeFigures KeysOf(SizeModel model) {
  return FiguresOf([model](double u) { return KeySize(model, u); });
}

TEST(SizeModels, EtcIsThePapers) {
  const SizeFigures values = ValuesOf(SizeModel::kEtc);
  EXPECT_NEAR(values.mean, 195, 10);
  for (const auto& [part, size] : std::vector<std::pair<double, double>>{
           {.1, 2}, {.25, 3}, {.5, 39}, {.75, 214}, {.9, 522}, {.99, 1901}, {.999, 4984}}) {
    EXPECT_NEAR(values.Quantile(part), size, 1 + size * 0.03) << part;
  }
  const SizeFigures keys = KeysOf(SizeModel::kEtc);
  EXPECT_NEAR(keys.mean, 36.2, 1);
  for (const auto& [part, size] :
       std::vector<std::pair<double, double>>{{.01, 19}, {.5, 34}, {.9, 51}, {.99, 76}}) {
    EXPECT_NEAR(keys.Quantile(part), size, 1.5) << part;
  }
}

TEST(SizeModels, RocksDbsAreTheTables) {
  struct Row {
    SizeModel model;
    double key, key_deviation, value, value_deviation;
  };
  for (const Row& row : {Row{SizeModel::kUdb, 27.1, 2.6, 126.7, 22.1},
                         Row{SizeModel::kUp2x, 10.45, 1.4, 46.8, 11.6}}) {
    const SizeFigures values = ValuesOf(row.model);
    EXPECT_NEAR(values.mean, row.value, 0.5) << SizeModelName(row.model);
    EXPECT_NEAR(values.deviation, row.value_deviation, 0.5) << SizeModelName(row.model);
    const SizeFigures keys = KeysOf(row.model);
    EXPECT_NEAR(keys.mean, row.key, 0.2) << SizeModelName(row.model);
    EXPECT_NEAR(keys.deviation, row.key_deviation, 0.2) << SizeModelName(row.model);
  }
  const SizeFigures zippy = ValuesOf(SizeModel::kZippyDb);
  EXPECT_NEAR(zippy.mean, 34.5, 1);
  EXPECT_NEAR(zippy.Quantile(.99), 229, 5);
  EXPECT_NEAR(KeysOf(SizeModel::kZippyDb).mean, 47.9, 0.2);
}

TEST(SizeModels, CacheLibsHaveTheQuantiles) {
  struct Row {
    SizeModel model;
    double mean, median, p90, p99, most;
  };
  for (const Row& row : {Row{SizeModel::kKvCache, 351, 191, 223, 991, 523e3},
                         Row{SizeModel::kGraph, 357, 255, 400, 2.3e3, 150e3},
                         Row{SizeModel::kAssocs, 1440, 95, 927, 25e3, 2.6e6},
                         Row{SizeModel::kCdn, 33e3, 13e3, 78e3, 274e3, 4.2e6}}) {
    const SizeFigures values = ValuesOf(row.model);
    EXPECT_NEAR(values.mean, row.mean, row.mean * 0.15) << SizeModelName(row.model);
    EXPECT_NEAR(values.Quantile(.5), row.median, row.median * 0.02) << SizeModelName(row.model);
    EXPECT_NEAR(values.Quantile(.9), row.p90, row.p90 * 0.02) << SizeModelName(row.model);
    EXPECT_NEAR(values.Quantile(.99), row.p99, row.p99 * 0.02) << SizeModelName(row.model);
    EXPECT_LE(static_cast<double>(values.sorted.back()), row.most) << SizeModelName(row.model);
    const SizeFigures keys = KeysOf(row.model);
    EXPECT_GE(keys.sorted.front(), 16u);
    EXPECT_LE(keys.sorted.back(), 255u);
  }
}

TEST(Sizes, ParsesEveryForm) {
  EXPECT_TRUE(Sizes::Parse("1KiB")->constant());
  EXPECT_EQ(Sizes::Parse("1KiB")->Mean(), 1024u);
  const Sizes uniform = *Sizes::Parse("uniform:10-19");
  EXPECT_EQ(uniform.At(0), 10u);
  EXPECT_EQ(uniform.At(0.999), 19u);
  EXPECT_EQ(uniform.name(), "uniform:10B-19B");
  const SizeFigures list =
      FiguresOf([sizes = *Sizes::Parse("list:64B:3,1KiB:1,5:0")](double u) { return sizes.At(u); });
  EXPECT_EQ(std::count(list.sorted.begin(), list.sorted.end(), 64u), 150'000);
  EXPECT_EQ(std::count(list.sorted.begin(), list.sorted.end(), 1024u), 50'000);
  EXPECT_EQ(Sizes::Parse("list:64B:3,1KiB:1")->Mean(), 304u);
  for (const SizeModel model : kSizeModels) {
    const auto sizes = Sizes::Parse(SizeModelName(model));
    ASSERT_TRUE(sizes.ok()) << sizes.status();
    EXPECT_EQ(sizes->At(0.7), ValueSize(model, 0.7));
  }
}

TEST(Sizes, SmallFirstIsZipfian) {
  const Sizes sizes = Sizes::SmallFirst(5, 1004);
  const SizeFigures figures = FiguresOf([&sizes](double u) { return sizes.At(u); });
  EXPECT_EQ(figures.sorted.front(), 5u);
  EXPECT_LE(figures.sorted.back(), 1004u);
  EXPECT_NEAR(static_cast<double>(std::count(figures.sorted.begin(), figures.sorted.end(), 5u)),
              200'000 * 0.12938, 300);
}

TEST(Sizes, TheSameNumberHasTheSameSize) {
  const Sizes etc = *Sizes::Parse("etc");
  double sum = 0;
  for (uint64_t number = 0; number < 100'000; ++number) {
    ASSERT_EQ(etc.Of(number), etc.Of(number));
    sum += static_cast<double>(etc.Of(number));
  }
  EXPECT_NEAR(sum / 1e5, 195, 20);
}

TEST(Sizes, HistogramFiles) {
  const std::string path = ::testing::TempDir() + "/verbena_sizes_" + std::to_string(getpid());
  const auto read = [&path](const std::string& text) {
    std::ofstream(path) << text;
    return Sizes::Parse("file:" + path);
  };
  const auto plain = read("# size count\n100 1\n200,3\n\n");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->At(0.2), 100u);
  EXPECT_EQ(plain->At(0.3), 200u);
  EXPECT_EQ(plain->Mean(), 175u);
  // YCSB's: blocks of 10, number 0 up.
  const auto ycsb = read("BlockSize\t10\n0\t1\n4\t1\n");
  ASSERT_TRUE(ycsb.ok()) << ycsb.status();
  EXPECT_EQ(ycsb->At(0.2), 10u);
  EXPECT_EQ(ycsb->At(0.7), 50u);
  EXPECT_THAT(read("100 1\n200\n").status().ToString(),
              HasSubstr("line 2: not a size and a count"));
  EXPECT_THAT(read("x 1\n").status().ToString(), HasSubstr("'x' is no size"));
  EXPECT_THAT(read("10 -1\n").status().ToString(), HasSubstr("'-1' is no count"));
  EXPECT_THAT(read("10 1\nBlockSize 4\n").status().ToString(), HasSubstr("must come first"));
  EXPECT_THAT(read("").status().ToString(), HasSubstr("has no sizes"));
  EXPECT_THAT(read("10 0\n").status().ToString(), HasSubstr("has no sizes"));
  std::remove(path.c_str());
  EXPECT_THAT(Sizes::Parse("file:" + path).status().ToString(), HasSubstr("cannot be read"));
  EXPECT_THAT(Sizes::Parse("file:/").status().ToString(), HasSubstr("cannot be read"));
}

TEST(Sizes, ListsSayWhatFilesSay) {
  const std::string path = ::testing::TempDir() + "/verbena_list_" + std::to_string(getpid());
  std::ofstream(path) << "0 1\n100 2\n5000 0\n7 1.5\n";
  const auto file = Sizes::Parse("file:" + path);
  std::remove(path.c_str());
  ASSERT_TRUE(file.ok()) << file.status();
  const auto list = Sizes::Parse(file->ListText());
  ASSERT_TRUE(Sizes::IsList(file->ListText()) && list.ok()) << file->ListText();
  for (double u = 0; u < 1; u += 0.001) EXPECT_EQ(file->At(u), list->At(u)) << u;
  EXPECT_EQ(Sizes(100).ListText(), "");
}

TEST(Sizes, RefusesWithTheWrongPart) {
  for (const auto& [text, part] :
       std::vector<std::pair<const char*, const char*>>{{"0", "'0'"},
                                                        {"2GiB", "'2GiB'"},
                                                        {"uniform:5", "'5' is no range"},
                                                        {"uniform:x-5", "'x'"},
                                                        {"uniform:0-5", "'0'"},
                                                        {"uniform:6-5", "least is more"},
                                                        {"list:", "no SIZE:WEIGHT"},
                                                        {"list:5:-1", "'5:-1'"},
                                                        {"list:5:1,y:2", "'y'"},
                                                        {"list:5:0", "add up to nothing"},
                                                        {"ETC", "'ETC'"}}) {
    const auto sizes = Sizes::Parse(text);
    ASSERT_FALSE(sizes.ok()) << text;
    EXPECT_EQ(sizes.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(sizes.status().ToString(), HasSubstr(part)) << text;
  }
}

}  // namespace
}  // namespace verbena::bench

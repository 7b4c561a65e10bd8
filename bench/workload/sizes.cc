#include "bench/workload/sizes.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "bench/workload/random.h"
#include "common/base/macros.h"
#include "common/base/sizes.h"
#include "common/base/text.h"

namespace verbena::bench {
namespace {

// How many sizes Mean() is taken of where there is no formula.
constexpr int kMeanSamples = 100'000;

absl::Status Wrong(std::string_view part, std::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat("'", ToAbsl(part), "' is ", ToAbsl(reason)));
}

absl::StatusOr<uint64_t> OneSize(std::string_view text, uint64_t least) {
  const absl::StatusOr<uint64_t> size = ParseSize(text);
  if (!size.ok() || *size < least || *size > Sizes::kMaxSize) {
    return Wrong(text, absl::StrCat("no size from ", least, "B to 1GiB"));
  }
  return size;
}

bool TakePrefix(std::string_view* text, std::string_view prefix) {
  if (text->substr(0, prefix.size()) != prefix) return false;
  text->remove_prefix(prefix.size());
  return true;
}

}  // namespace

Sizes::Sizes(uint64_t size) : least_(size), most_(size), mean_(size), name_(FormatSize(size)) {}

Sizes Sizes::Uniform(uint64_t least, uint64_t most) {
  Sizes sizes;
  sizes.kind_ = Kind::kUniform;
  sizes.least_ = least;
  sizes.most_ = most;
  sizes.name_ = absl::StrCat("uniform:", FormatSize(least), "-", FormatSize(most));
  sizes.mean_ = least + (most - least) / 2;
  return sizes;
}

Sizes Sizes::SmallFirst(uint64_t least, uint64_t most) {
  Sizes sizes = Uniform(least, most);
  sizes.kind_ = Kind::kSmallFirst;
  sizes.ranks_.emplace(most - least + 1, kYcsbTheta);
  sizes.name_ = absl::StrCat("zipfian:", FormatSize(least), "-", FormatSize(most));
  sizes.SetMean();
  return sizes;
}

Sizes Sizes::Model(SizeModel model) {
  Sizes sizes;
  sizes.kind_ = Kind::kModel;
  sizes.model_ = model;
  sizes.name_ = SizeModelName(model);
  sizes.SetMean();
  return sizes;
}

absl::StatusOr<Sizes> Sizes::FromWeights(std::vector<uint64_t> values,
                                         std::vector<double> weights) {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  if (!(sum > 0) || !std::isfinite(sum)) {
    return absl::InvalidArgumentError("the weights of the sizes add up to nothing");
  }
  auto table = std::make_shared<Table>();
  double below = 0;
  double mean = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (weights[i] == 0) continue;
    below += weights[i] / sum;
    mean += static_cast<double>(values[i]) * weights[i] / sum;
    table->sizes.push_back(values[i]);
    table->below.push_back(below);
  }
  table->below.back() = 1;
  Sizes sizes;
  sizes.kind_ = Kind::kTable;
  sizes.table_ = std::move(table);
  sizes.mean_ = static_cast<uint64_t>(std::llround(mean));
  return sizes;
}

absl::StatusOr<Sizes> Sizes::ParseUniform(std::string_view range) {
  const size_t dash = range.find('-');
  if (dash == std::string_view::npos) return Wrong(range, "no range MIN-MAX");
  VERBENA_ASSIGN_OR_RETURN(const uint64_t least, OneSize(range.substr(0, dash), 1));
  VERBENA_ASSIGN_OR_RETURN(const uint64_t most, OneSize(range.substr(dash + 1), 1));
  if (least > most) return Wrong(range, "a range whose least is more than its most");
  return Uniform(least, most);
}

absl::StatusOr<Sizes> Sizes::ParseList(std::string_view list) {
  std::vector<uint64_t> values;
  std::vector<double> weights;
  for (const absl::string_view entry : absl::StrSplit(ToAbsl(list), ',')) {
    const std::string_view text = ToStd(entry);
    const size_t colon = text.find(':');
    double weight = 0;
    if (colon == std::string_view::npos ||
        !absl::SimpleAtod(ToAbsl(text.substr(colon + 1)), &weight) || !(weight >= 0) ||
        !std::isfinite(weight)) {
      return Wrong(text, "no SIZE:WEIGHT");
    }
    // Files have sizes of 0, too.
    VERBENA_ASSIGN_OR_RETURN(const uint64_t size, OneSize(text.substr(0, colon), 0));
    values.push_back(size);
    weights.push_back(weight);
  }
  VERBENA_ASSIGN_OR_RETURN(Sizes sizes, FromWeights(std::move(values), std::move(weights)));
  sizes.name_ = absl::StrCat("list:", ToAbsl(list));
  return sizes;
}

absl::StatusOr<Sizes> Sizes::FromHistogram(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::InvalidArgumentError(absl::StrCat(path, ": it cannot be read"));
  const auto wrong = [&path](int number, std::string_view reason) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": line ", number, ": ", ToAbsl(reason)));
  };
  std::vector<uint64_t> values;
  std::vector<double> weights;
  uint64_t block = 0;  // YCSB's form
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t,\r"), absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    uint64_t size = 0;
    double weight = 0;
    if (words.size() != 2) return wrong(number, "not a size and a count");
    if (words[0] == "BlockSize") {
      if (!values.empty() || !absl::SimpleAtoi(words[1], &block) || block == 0 ||
          block > kMaxSize) {
        return wrong(number, "BlockSize must come first, with a number from 1");
      }
      continue;
    }
    if (!absl::SimpleAtoi(words[0], &size) || size > kMaxSize) {
      return wrong(number, absl::StrCat("'", words[0], "' is no size from 0 to ", kMaxSize));
    }
    if (block != 0) size = (size + 1) * block;
    if (size > kMaxSize) return wrong(number, absl::StrCat("sizes end at ", kMaxSize));
    if (!absl::SimpleAtod(words[1], &weight) || !(weight >= 0) || !std::isfinite(weight)) {
      return wrong(number, absl::StrCat("'", words[1], "' is no count"));
    }
    values.push_back(size);
    weights.push_back(weight);
  }
  if (file.bad()) return absl::InvalidArgumentError(absl::StrCat(path, ": it cannot be read"));
  auto sizes = FromWeights(std::move(values), std::move(weights));
  if (!sizes.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": it has no sizes"));
  sizes->name_ = absl::StrCat("file:", path);
  return sizes;
}

absl::StatusOr<Sizes> Sizes::Parse(std::string_view text) {
  for (const SizeModel model : kSizeModels) {
    if (text == SizeModelName(model)) return Model(model);
  }
  std::string_view rest = text;
  if (TakePrefix(&rest, "uniform:")) return ParseUniform(rest);
  if (TakePrefix(&rest, "list:")) return ParseList(rest);
  if (TakePrefix(&rest, "file:")) return FromHistogram(std::string(rest));
  VERBENA_ASSIGN_OR_RETURN(const uint64_t size, OneSize(text, 1));
  return Sizes(size);
}

std::string Sizes::ListText() const {
  if (table_ == nullptr) return "";
  std::string text;
  double before = 0;
  for (size_t i = 0; i < table_->sizes.size(); ++i) {
    absl::StrAppendFormat(&text, "%s%d:%.17g", i == 0 ? "list:" : ",", table_->sizes[i],
                          table_->below[i] - before);
    before = table_->below[i];
  }
  return text;
}

void Sizes::SetMean() {
  double sum = 0;
  for (int i = 0; i < kMeanSamples; ++i) sum += static_cast<double>(At((i + 0.5) / kMeanSamples));
  mean_ = static_cast<uint64_t>(std::llround(sum / kMeanSamples));
}

uint64_t Sizes::At(double u) const {
  switch (kind_) {
    case Kind::kConstant:
      break;
    case Kind::kUniform:
      return least_ + static_cast<uint64_t>(u * static_cast<double>(most_ - least_ + 1));
    case Kind::kSmallFirst:
      return least_ + ranks_->Rank(u);
    case Kind::kModel:
      return ValueSize(model_, u);
    case Kind::kTable: {
      const auto at = std::upper_bound(table_->below.begin(), table_->below.end(), u);
      const auto index = std::min<size_t>(static_cast<size_t>(at - table_->below.begin()),
                                          table_->sizes.size() - 1);
      return table_->sizes[index];
    }
  }
  return least_;
}

uint64_t Sizes::Of(uint64_t number) const {
  if (constant()) return least_;
  return At(static_cast<double>(Mix64(number) >> 11) * 0x1.0p-53);
}

}  // namespace verbena::bench

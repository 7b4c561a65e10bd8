#include "bench/core_properties.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/macros.h"
#include "common/base/text.h"

namespace verbena::bench {
namespace {

constexpr uint64_t kMaxRecords = 10'000'000'000;
// How far from 1 the sum of the proportions may be: they are decimal fractions.
constexpr double kSumTolerance = 1e-6;

struct Proportion {
  const char* name;
  OpKind kind;
  double by_default;
};
constexpr Proportion kProportions[] = {
    {"readproportion", OpKind::kRead, 0.95},
    {"updateproportion", OpKind::kUpdate, 0.05},
    {"insertproportion", OpKind::kInsert, 0},
    {"scanproportion", OpKind::kScan, 0},
    {"readmodifywriteproportion", OpKind::kReadModifyWrite, 0},
};

// Takes values out of properties. The first error stays; what is read after it does not matter.
class PropertyReader {
 public:
  explicit PropertyReader(const Properties& properties) : properties_(properties) {}

  const absl::Status& status() const { return status_; }
  bool Has(const char* name) const { return properties_.Find(name) != nullptr; }

  void Refuse(const char* name, std::string_view allowed) {
    const Properties::Entry* const entry = properties_.Find(name);
    if (!status_.ok() || entry == nullptr) return;
    status_ =
        absl::InvalidArgumentError(absl::StrCat(name, "=", entry->value, " (", entry->from,
                                                ") is not allowed: it must be ", ToAbsl(allowed)));
  }

  std::string Text(const char* name, std::string_view by_default) const {
    const Properties::Entry* const entry = properties_.Find(name);
    return entry == nullptr ? std::string(by_default) : entry->value;
  }

  uint64_t Count(const char* name, uint64_t by_default, uint64_t least, uint64_t most) {
    const Properties::Entry* const entry = properties_.Find(name);
    if (entry == nullptr) return by_default;
    const auto value = ParseCount(entry->value);
    if (value.ok() && *value >= least && *value <= most) return *value;
    Refuse(name, absl::StrCat("a number from ", least, " to ", most));
    return by_default;
  }

  double Number(const char* name, double by_default, double least, double most) {
    const Properties::Entry* const entry = properties_.Find(name);
    if (entry == nullptr) return by_default;
    double value = 0;
    if (absl::SimpleAtod(entry->value, &value) && value >= least && value <= most) return value;
    Refuse(name, absl::StrFormat("a number from %g to %g", least, most));
    return by_default;
  }

  bool Truth(const char* name, bool by_default) {
    return Choice(name, by_default ? "true" : "false", {"true", "false"}) == "true";
  }

  std::string Choice(const char* name, std::string_view by_default,
                     const std::vector<std::string_view>& allowed) {
    std::string value = Text(name, by_default);
    if (Has(name) && std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
      Refuse(name, absl::StrJoin(allowed, " or ", [](std::string* out, std::string_view choice) {
               out->append(choice);
             }));
    }
    return value;
  }

 private:
  const Properties& properties_;
  absl::Status status_;
};

absl::Status CheckNames(const Properties& properties) {
  const auto& known = CorePropertyNames();
  for (const auto& [name, entry] : properties.entries()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat("there is no property '", name, "' (",
                                                   entry.from, "); the nearest is '",
                                                   ToAbsl(NearestName(name, known)), "'"));
  }
  return absl::OkStatus();
}

void ReadClass(PropertyReader& reader) {
  const std::string name = reader.Text("workload", "CoreWorkload");
  if (name.substr(name.rfind('.') + 1) != "CoreWorkload") {
    reader.Refuse("workload", "the core workload, site.ycsb.workloads.CoreWorkload");
  }
}

absl::Status ReadProportions(PropertyReader& reader, bool named, Workload* workload) {
  double sum = 0;
  std::string terms;
  for (const Proportion& part : kProportions) {
    double& proportion = workload->proportion[Index(part.kind)];
    if (!named) proportion = part.by_default;
    proportion = reader.Number(part.name, proportion, 0, 1);
    sum += proportion;
    absl::StrAppend(&terms, terms.empty() ? "" : ", ", part.name, "=", proportion,
                    reader.Has(part.name) ? ""
                    : named               ? " (as the workload has it)"
                                          : " (by default)");
  }
  VERBENA_RETURN_IF_ERROR(reader.status());
  if (std::abs(sum - 1) > kSumTolerance) {
    return absl::InvalidArgumentError(
        absl::StrCat("the proportions add up to ", sum, ", not to 1: ", terms));
  }
  return absl::OkStatus();
}

void ReadDistribution(PropertyReader& reader, bool named, RequestDistribution* distribution) {
  if (!named) *distribution = Distribution::kUniform;
  if (reader.Has("requestdistribution")) {
    const auto parsed = ParseDistribution(reader.Text("requestdistribution", ""));
    if (parsed.ok()) {
      *distribution = *parsed;
    } else {
      reader.Refuse("requestdistribution", kDistributionNames);
    }
  }
  RequestDistribution& d = *distribution;
  d.hotspot_data = reader.Number("hotspotdatafraction", d.hotspot_data, 0, 1);
  d.hotspot_operations = reader.Number("hotspotopnfraction", d.hotspot_operations, 0, 1);
  d.exponential_percentile =
      reader.Number("exponential.percentile", d.exponential_percentile, 0.001, 99.999);
  d.exponential_part = reader.Number("exponential.frac", d.exponential_part, 1e-9, 1000);
}

void ReadScans(PropertyReader& reader, bool named, Workload* workload) {
  if (!named) workload->max_scan_length = 1000;
  workload->max_scan_length =
      static_cast<uint32_t>(reader.Count("maxscanlength", workload->max_scan_length, 1, 1'000'000));
  workload->min_scan_length =
      static_cast<uint32_t>(reader.Count("minscanlength", workload->min_scan_length, 1, 1'000'000));
  if (workload->min_scan_length > workload->max_scan_length) {
    reader.Refuse(reader.Has("minscanlength") ? "minscanlength" : "maxscanlength",
                  absl::StrCat("such that minscanlength=", workload->min_scan_length,
                               " is not above maxscanlength=", workload->max_scan_length));
  }
  workload->short_scans =
      reader.Choice("scanlengthdistribution", "uniform", {"uniform", "zipfian"}) == "zipfian";
}

// The sizes of fields.
absl::StatusOr<Sizes> ReadFieldSizes(PropertyReader& reader) {
  const uint64_t length = reader.Count("fieldlength", 100, 1, Sizes::kMaxSize);
  const uint64_t least = reader.Count("minfieldlength", 1, 1, Sizes::kMaxSize);
  const std::string kind = reader.Choice("fieldlengthdistribution", "constant",
                                         {"constant", "uniform", "zipfian", "histogram"});
  VERBENA_RETURN_IF_ERROR(reader.status());
  if (kind == "histogram") {
    const std::string where = reader.Text("fieldlengthhistogram", "hist.txt");
    if (!Sizes::IsList(where)) return Sizes::FromHistogram(where);
    auto list = Sizes::Parse(where);
    if (!list.ok()) {
      reader.Refuse("fieldlengthhistogram", absl::StrCat("a file, or list:SIZE:WEIGHT,... (",
                                                         list.status().message(), ")"));
      return reader.status();
    }
    return list;
  }
  if (kind == "constant") return Sizes(length);
  if (least > length) {
    reader.Refuse(
        reader.Has("minfieldlength") ? "minfieldlength" : "fieldlength",
        absl::StrCat("such that minfieldlength=", least, " is not above fieldlength=", length));
    return reader.status();
  }
  return kind == "uniform" ? Sizes::Uniform(least, length) : Sizes::SmallFirst(least, length);
}

absl::Status ReadFields(PropertyReader& reader, Config* config) {
  RecordFields& fields = config->workload.fields;
  fields.count = static_cast<uint32_t>(reader.Count("fieldcount", 10, 1, 65'536));
  fields.name_prefix = reader.Text("fieldnameprefix", "field");
  fields.read_all = reader.Truth("readallfields", true);
  fields.write_all = reader.Truth("writeallfields", false);
  VERBENA_ASSIGN_OR_RETURN(const Sizes sizes, ReadFieldSizes(reader));
  if (fields.name_prefix.size() > 1024) {
    reader.Refuse("fieldnameprefix", "at most 1024 characters");
  }
  VERBENA_RETURN_IF_ERROR(reader.status());
  const uint64_t size = RecordValues(fields, sizes).MeanSize();
  if (size > Sizes::kMaxSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("fieldcount=", fields.count, " fields of fieldlength=", sizes.Mean(),
                     " are records of ", size, " bytes: there are none above 1GiB"));
  }
  config->sizes = sizes;
  config->value_size = static_cast<uint32_t>(size);
  return absl::OkStatus();
}

// --value_size makes records of one field; then no property may speak of fields.
absl::Status ReadRecords(PropertyReader& reader, bool value_size_given, Config* config) {
  if (!value_size_given) return ReadFields(reader, config);
  for (const char* name : {"fieldcount", "fieldlength", "minfieldlength", "fieldlengthdistribution",
                           "fieldlengthhistogram"}) {
    reader.Refuse(name, "left out, or --value_size left out: both say how large records are");
  }
  return reader.status();
}

void ReadKeys(PropertyReader& reader, Config* config) {
  config->ordered_keys = reader.Choice("insertorder", "hashed", {"hashed", "ordered"}) == "ordered";
  config->zero_padding = static_cast<uint32_t>(reader.Count("zeropadding", 1, 0, 1000));
  if (config->zero_padding > 1 && config->key_size != 0) {
    reader.Refuse("zeropadding", "left out where --key_size says how long keys are");
  }
}

void ReadAmounts(PropertyReader& reader, const std::function<bool(const char*)>& given,
                 Config* config) {
  if (!given("records")) {
    config->records = reader.Count("recordcount", config->records, 1, kMaxRecords);
  }
  config->insert_start = reader.Count("insertstart", 0, 0, config->records - 1);
  const uint64_t rest = config->records - config->insert_start;
  config->insert_count = reader.Count("insertcount", rest, 1, rest);
  const uint64_t operations = reader.Count("operationcount", 0, 0, 1'000'000'000'000);
  const double seconds = reader.Number("maxexecutiontime", 0, 0, 1e6);
  const double rate = reader.Number("target", 0, 0, 1e9);
  if (config->command == Command::kRun) {
    if (!given("operations")) config->operations = operations;
    if (!given("seconds") && (seconds > 0 || config->operations > 0)) {
      config->duration = std::chrono::nanoseconds(std::llround(seconds * 1e9));
    }
    if (!given("rate") && rate > 0 && !config->load.several_rates()) config->load.rate = rate;
  }
  if (!given("threads")) {
    config->threads = static_cast<uint32_t>(reader.Count("threadcount", 1, 1, 1024));
    if (!given("connections")) config->connections = config->threads;
    if (config->connections % config->threads != 0) {
      reader.Refuse("threadcount",
                    absl::StrCat("a divisor of --connections=", config->connections));
    }
  }
  config->insert_retries =
      static_cast<uint32_t>(reader.Count("core_workload_insertion_retry_limit", 0, 0, 1'000'000));
  const double pause = reader.Number("core_workload_insertion_retry_interval", 3, 0, 3600);
  config->insert_retry_interval = std::chrono::nanoseconds(std::llround(pause * 1e9));
}

// What YCSB's text form has of each kind of operation: one form, or several with '+' between.
void ReadMeasurementType(PropertyReader& reader, YcsbForm* form) {
  const std::string types = reader.Text("measurementtype", "hdrhistogram");
  form->percentiles = form->histogram = form->time_series = false;
  for (const absl::string_view type : absl::StrSplit(types, '+')) {
    if (type == "hdrhistogram") {
      form->percentiles = true;
    } else if (type == "histogram") {
      form->histogram = true;
    } else if (type == "timeseries") {
      form->time_series = true;
    } else if (type == "raw") {
      reader.Refuse("measurementtype",
                    "without raw: single latencies are kept nowhere. --hgrm=PREFIX writes their "
                    "distribution, --csv=FILE what each second had");
    } else {
      reader.Refuse("measurementtype",
                    "hdrhistogram, histogram or timeseries, or hdrhistogram+ one of the others");
    }
  }
  if (form->histogram && form->time_series) {
    reader.Refuse("measurementtype", "only one of histogram and timeseries: their lines are alike");
  }
}

void ReadMeasurements(PropertyReader& reader, const std::function<bool(const char*)>& given,
                      Config* config) {
  YcsbForm& form = config->load.ycsb;
  ReadMeasurementType(reader, &form);
  const std::string interval =
      reader.Choice("measurement.interval", "", {"op", "intended", "both"});
  if (interval == "op") form.times = YcsbForm::Times::kService;
  if (interval == "intended") form.times = YcsbForm::Times::kResponse;
  if (interval == "both") form.times = YcsbForm::Times::kBoth;
  form.buckets = reader.Count("histogram.buckets", 1000, 1, 100'000);
  if (reader.Count("timeseries.granularity", 1000, 0, UINT64_MAX) != 1000) {
    reader.Refuse("timeseries.granularity", "1000: what is known is what each second had");
  }
  if (reader.Truth("hdrhistogram.fileoutput", false)) {
    reader.Refuse("hdrhistogram.fileoutput", "false: the flag --hgrm=PREFIX writes histograms");
  }
  const uint64_t seconds = reader.Count("status.interval", 10, 1, 86'400);
  if (reader.Has("status.interval") && !given("status_interval")) {
    config->load.status_interval = std::chrono::seconds(seconds);
  }
  std::vector<double> percentiles;
  for (const absl::string_view part :
       absl::StrSplit(reader.Text("hdrhistogram.percentiles", "50,95,99"), ',')) {
    double percentile = 0;
    if (!absl::SimpleAtod(part, &percentile) || !(percentile > 0 && percentile <= 100)) {
      reader.Refuse("hdrhistogram.percentiles", "numbers above 0 up to 100, with commas between");
    }
    percentiles.push_back(percentile);
  }
  form.percents = std::move(percentiles);
}

}  // namespace

const std::vector<std::string_view>& CorePropertyNames() {
  static const auto* const kAllNames = new std::vector<std::string_view>{
      "core_workload_insertion_retry_interval",
      "core_workload_insertion_retry_limit",
      "dataintegrity",
      "exponential.frac",
      "exponential.percentile",
      "fieldcount",
      "fieldlength",
      "fieldlengthdistribution",
      "fieldlengthhistogram",
      "fieldnameprefix",
      "hdrhistogram.fileoutput",
      "hdrhistogram.percentiles",
      "histogram.buckets",
      "hotspotdatafraction",
      "hotspotopnfraction",
      "insertcount",
      "insertorder",
      "insertproportion",
      "insertstart",
      "maxexecutiontime",
      "maxscanlength",
      "measurement.interval",
      "measurementtype",
      "minfieldlength",
      "minscanlength",
      "operationcount",
      "readallfields",
      "readmodifywriteproportion",
      "readproportion",
      "recordcount",
      "requestdistribution",
      "scanlengthdistribution",
      "scanproportion",
      "status.interval",
      "table",
      "target",
      "threadcount",
      "timeseries.granularity",
      "updateproportion",
      "workload",
      "writeallfields",
      "zeropadding",
  };
  return *kAllNames;
}

absl::Status ApplyProperties(const Properties& properties,
                             const std::function<bool(const char* flag)>& given,
                             bool named_workload, Config* config) {
  if (properties.empty()) return absl::OkStatus();
  VERBENA_RETURN_IF_ERROR(CheckNames(properties));
  PropertyReader reader(properties);
  Workload& workload = config->workload;
  if (!named_workload) {
    workload.name = "core";
    workload.description = "as its properties say";
  }
  ReadClass(reader);
  VERBENA_RETURN_IF_ERROR(ReadProportions(reader, named_workload, &workload));
  RequestDistribution distribution = workload.distribution;
  ReadDistribution(reader, named_workload, &distribution);
  if (!given("distribution")) config->distribution = distribution;
  ReadScans(reader, named_workload, &workload);
  VERBENA_RETURN_IF_ERROR(ReadRecords(reader, given("value_size"), config));
  ReadKeys(reader, config);
  ReadAmounts(reader, given, config);
  ReadMeasurements(reader, given, config);
  workload.fields.integrity = reader.Truth("dataintegrity", false);
  if (workload.fields.integrity && config->sizes.has_value() && !config->sizes->constant()) {
    reader.Refuse("dataintegrity",
                  "false where values are of several sizes: YCSB's contents have the length that "
                  "they are checked for");
  }
  return reader.status();
}

}  // namespace verbena::bench

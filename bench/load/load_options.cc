#include "bench/load/load_options.h"

#include <gflags/gflags.h>

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/macros.h"
#include "common/base/text.h"

DEFINE_string(rate, "0", "operations a second in all, as an open loop (0.001 to 100M; 0: closed)");
DEFINE_string(arrival, "fixed", "intervals of --rate: fixed or poisson");
DEFINE_string(ramp, "", "rates one after another: FROM:TO:STEP@SECONDS");
DEFINE_string(sweep, "", "a run for each of these rates: R1,R2,...");
DEFINE_string(search, "", "highest rate that keeps a percentile, as p99:50us");
DEFINE_string(warmup_operations, "0", "operations to do before measuring (0 to 1000G)");
DEFINE_string(format, "table", "results on standard output: table, ycsb, json or none");
DEFINE_string(csv, "", "file for figures of each second");
DEFINE_string(hgrm, "", "files PREFIX-KIND.hgrm for HdrHistogram's percentile distributions");
DEFINE_string(status_interval, "10", "seconds between lines of progress (0 to 100000; 0: none)");
DEFINE_string(agents, "", "other processes that do the run: HOST:PORT,...");
DEFINE_string(listen, "127.0.0.1:7500", "where an agent listens: ADDR:PORT");

namespace verbena::bench {
namespace {

constexpr double kLeastRate = 0.001;
constexpr double kMostRate = 1e8;
constexpr size_t kMostRates = 1000;
constexpr size_t kMostAgents = 1000;

absl::Status WrongLoad(std::string_view text, std::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat("'", ToAbsl(text), "' is not ", ToAbsl(allowed)));
}

absl::Status BadLoadFlag(const char* name, const std::string& value, std::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, "=", value, " is not allowed: it must be ", ToAbsl(allowed)));
}

// The value of a flag, or its text as the error.
template <typename T>
absl::Status Take(const char* name, const std::string& text, std::string_view allowed,
                  absl::StatusOr<T> parsed, T* value) {
  if (!parsed.ok()) {
    return BadLoadFlag(name, text,
                       absl::StrCat(ToAbsl(allowed), " (", parsed.status().message(), ")"));
  }
  *value = *std::move(parsed);
  return absl::OkStatus();
}

absl::StatusOr<double> ParseNumber(std::string_view text) {
  double value = 0;
  if (!absl::SimpleAtod(ToAbsl(text), &value) || !std::isfinite(value)) {
    return WrongLoad(text, "a number");
  }
  return value;
}

absl::Status ReadRates(LoadOptions& options) {
  constexpr std::string_view kRates = "a rate from 0.001 to 100M";
  if (FLAGS_rate != "0") {
    VERBENA_RETURN_IF_ERROR(Take("rate", FLAGS_rate, "0 or a rate from 0.001 to 100M",
                                 ParseRate(FLAGS_rate), &options.rate));
  }
  if (FLAGS_arrival == "poisson") {
    options.arrival = Arrival::kPoisson;
  } else if (FLAGS_arrival != "fixed") {
    return BadLoadFlag("arrival", FLAGS_arrival, "fixed or poisson");
  }
  int several = 0;
  if (!FLAGS_ramp.empty()) {
    ++several;
    RampOptions ramp;
    VERBENA_RETURN_IF_ERROR(Take("ramp", FLAGS_ramp,
                                 "FROM:TO:STEP@SECONDS with rates from 0.001 to 100M, at most 1000 "
                                 "of them, and 0.1 to 1000000 seconds",
                                 ParseRamp(FLAGS_ramp), &ramp));
    options.ramp = ramp;
  }
  if (!FLAGS_sweep.empty()) {
    ++several;
    VERBENA_RETURN_IF_ERROR(
        Take("sweep", FLAGS_sweep,
             absl::StrCat("at most 1000 rates with commas between, each ", ToAbsl(kRates)),
             ParseSweep(FLAGS_sweep), &options.sweep));
  }
  if (!FLAGS_search.empty()) {
    ++several;
    SearchOptions search;
    VERBENA_RETURN_IF_ERROR(Take("search", FLAGS_search,
                                 "a percentile above 0 and below 100 and a time, as p99:50us",
                                 ParseSearch(FLAGS_search), &search));
    options.search = search;
  }
  if (several + (options.rate > 0 ? 1 : 0) > 1) {
    return absl::InvalidArgumentError(
        "only one of --rate, --ramp, --sweep and --search may be given");
  }
  return absl::OkStatus();
}

absl::Status ReadOutputs(LoadOptions& options) {
  constexpr std::pair<const char*, OutputFormat> kFormats[] = {{"table", OutputFormat::kTable},
                                                               {"ycsb", OutputFormat::kYcsb},
                                                               {"json", OutputFormat::kJson},
                                                               {"none", OutputFormat::kNone}};
  bool known = false;
  for (const auto& [name, format] : kFormats) {
    if (FLAGS_format != name) continue;
    options.format = format;
    known = true;
  }
  if (!known) return BadLoadFlag("format", FLAGS_format, "table, ycsb, json or none");
  options.csv_file = FLAGS_csv;
  options.hgrm_prefix = FLAGS_hgrm;
  double seconds = 0;
  if (!absl::SimpleAtod(FLAGS_status_interval, &seconds) || !(seconds >= 0 && seconds <= 1e5)) {
    return BadLoadFlag("status_interval", FLAGS_status_interval,
                       "a number of seconds from 0 to 100000");
  }
  options.status_interval = std::chrono::nanoseconds(std::llround(seconds * 1e9));
  return absl::OkStatus();
}

}  // namespace

std::vector<double> RampOptions::Rates() const {
  std::vector<double> rates;
  const double direction = to < from ? -1 : 1;
  // Multiples, so that no error adds up; the last one is reached in spite of rounding.
  for (size_t i = 0; i <= kMostRates; ++i) {
    const double rate = from + direction * step * static_cast<double>(i);
    if ((rate - to) * direction > step * 1e-9) break;
    rates.push_back(rate);
  }
  return rates;
}

absl::StatusOr<double> ParseRate(std::string_view text) {
  double unit = 1;
  std::string_view digits = text;
  if (!text.empty()) {
    const char last = text.back();
    unit = last == 'k' || last == 'K' ? 1e3 : last == 'M' ? 1e6 : 1;
    if (unit > 1) digits.remove_suffix(1);
  }
  VERBENA_ASSIGN_OR_RETURN(const double value, ParseNumber(digits));
  const double rate = value * unit;
  if (!(rate >= kLeastRate && rate <= kMostRate))
    return WrongLoad(text, "a rate from 0.001 to 100M");
  return rate;
}

absl::StatusOr<std::chrono::nanoseconds> ParseDuration(std::string_view text) {
  constexpr std::pair<const char*, double> kUnits[] = {
      {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
  for (const auto& [name, unit] : kUnits) {
    if (!absl::EndsWith(ToAbsl(text), name)) continue;
    const auto value = ParseNumber(text.substr(0, text.size() - std::string_view(name).size()));
    if (!value.ok() || !(*value * unit >= 1 && *value * unit <= 1e11)) break;
    return std::chrono::nanoseconds(std::llround(*value * unit));
  }
  return WrongLoad(text, "a time from 1ns to 100s, as 50us, 1.5ms or 2s");
}

absl::StatusOr<RampOptions> ParseRamp(std::string_view text) {
  const std::vector<std::string> halves = absl::StrSplit(ToAbsl(text), '@');
  if (halves.size() != 2) return WrongLoad(text, "of the form FROM:TO:STEP@SECONDS");
  const std::vector<std::string> rates = absl::StrSplit(halves[0], ':');
  if (rates.size() != 3) return WrongLoad(text, "of the form FROM:TO:STEP@SECONDS");
  RampOptions ramp;
  VERBENA_ASSIGN_OR_RETURN(ramp.from, ParseRate(rates[0]));
  VERBENA_ASSIGN_OR_RETURN(ramp.to, ParseRate(rates[1]));
  VERBENA_ASSIGN_OR_RETURN(ramp.step, ParseRate(rates[2]));
  VERBENA_ASSIGN_OR_RETURN(const double seconds, ParseNumber(halves[1]));
  if (!(seconds >= 0.1 && seconds <= 1e6)) {
    return WrongLoad(halves[1], "a number of seconds from 0.1 to 1000000");
  }
  ramp.hold = std::chrono::nanoseconds(std::llround(seconds * 1e9));
  if (ramp.Rates().size() > kMostRates) return WrongLoad(text, "a ramp of at most 1000 rates");
  return ramp;
}

absl::StatusOr<std::vector<double>> ParseSweep(std::string_view text) {
  std::vector<double> rates;
  const std::vector<std::string> parts = absl::StrSplit(ToAbsl(text), ',');
  for (const std::string& part : parts) {
    VERBENA_ASSIGN_OR_RETURN(const double rate, ParseRate(part));
    rates.push_back(rate);
  }
  if (rates.size() > kMostRates) return WrongLoad(text, "a list of at most 1000 rates");
  return rates;
}

absl::StatusOr<SearchOptions> ParseSearch(std::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(ToAbsl(text), ':');
  if (parts.size() != 2 || parts[0].empty() || parts[0][0] != 'p') {
    return WrongLoad(text, "of the form p99:50us");
  }
  SearchOptions search;
  VERBENA_ASSIGN_OR_RETURN(search.percent, ParseNumber(parts[0].substr(1)));
  if (!(search.percent > 0 && search.percent < 100)) {
    return WrongLoad(parts[0], "a percentile above p0 and below p100");
  }
  VERBENA_ASSIGN_OR_RETURN(search.limit, ParseDuration(parts[1]));
  return search;
}

absl::StatusOr<LoadOptions> LoadOptionsFromFlags() {
  LoadOptions options;
  VERBENA_RETURN_IF_ERROR(ReadRates(options));
  VERBENA_RETURN_IF_ERROR(ReadOutputs(options));
  if (!absl::SimpleAtoi(FLAGS_warmup_operations, &options.warmup_operations) ||
      options.warmup_operations > 1'000'000'000'000) {
    return BadLoadFlag("warmup_operations", FLAGS_warmup_operations,
                       "a number from 0 to 1000000000000");
  }
  if (!FLAGS_agents.empty()) options.agents = absl::StrSplit(FLAGS_agents, ',');
  if (options.agents.size() > kMostAgents) {
    return BadLoadFlag("agents", FLAGS_agents, "at most 1000 of HOST:PORT");
  }
  for (const std::string& agent : options.agents) {
    const size_t colon = agent.rfind(':');
    uint32_t port = 0;
    if (colon == std::string::npos || colon == 0 ||
        !absl::SimpleAtoi(agent.substr(colon + 1), &port) || port == 0 || port > 65535) {
      return BadLoadFlag("agents", FLAGS_agents, "a list of HOST:PORT with commas between");
    }
  }
  return options;
}

std::string AgentListenAddress() { return FLAGS_listen; }

std::string_view LoadOptionsHelp() {
  return R"(
At what rate (open loop: operations are due at times that do not ask how the server is doing; a
response time counts from when an operation was due, a service time from when it was submitted)
  --rate=0             operations a second, of all threads and agents together (0.001 to 100M; k and M
                       are decimal); 0: closed loop, which knows service times only
  --arrival=fixed      equal intervals, or poisson: as if of many who do not know of each other
  --ramp=FROM:TO:STEP@SECONDS  a staircase of rates, each for so long (0.1 to 1000000)
  --sweep=R1,R2,...    a run of --seconds for each rate
  --search=p99:50us    the highest rate at which a percentile of the response time keeps a limit
                       (1ns to 100s), by bisection in runs of --seconds, and confirmed by two more
  --warmup_operations=0  do this many before measuring (beside --warmup_seconds; 0 to 1000G)

Outputs
  --format=table       on standard output: table, ycsb (load, run: YCSB's own text form), json or none
  --csv=FILE           count, errors, rate, mean, p50, p99, p99.9 and max of each second and kind
  --hgrm=PREFIX        HdrHistogram's percentile distribution, in PREFIX-read.hgrm and so on, and of
                       response times in PREFIX-read-response.hgrm
  --status_interval=10  seconds between lines of progress where standard error is no terminal (0 to
                       100000; 0: none); on a terminal one line is rewritten each second

Several processes or hosts
  verbena-bench agent --listen=127.0.0.1:7500  waits for a coordinator and does its share of a run.
                       NO AUTHENTICATION: whoever reaches the port can have it load any server
  --agents=HOST:PORT,...  load and run: these do it, with --threads each, and start together; --rate,
                       --operations and --records are shared out. Histograms are merged
)";
}

}  // namespace verbena::bench

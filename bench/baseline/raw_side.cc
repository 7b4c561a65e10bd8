#include "bench/baseline/raw_side.h"

#include <chrono>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/macros.h"
#include "common/base/text.h"
#include "common/layout/item.h"
#include "common/layout/size_class.h"

namespace verbena::bench {
namespace {

constexpr std::chrono::seconds kTargetPatience{30};

// The numbers of a line "WORD n n ..." that the target prints.
absl::StatusOr<std::vector<uint64_t>> ReadAnswer(ChildProcess& process, std::string_view word,
                                                 size_t numbers) {
  VERBENA_ASSIGN_OR_RETURN(const std::string line, process.ReadLine(kTargetPatience));
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  std::vector<uint64_t> values(numbers);
  bool good = words.size() == numbers + 1 && words[0] == word;
  for (size_t i = 0; good && i < numbers; ++i) good = absl::SimpleAtoi(words[i + 1], &values[i]);
  if (!good) return absl::InternalError(absl::StrCat("the raw target says: ", line));
  return values;
}

}  // namespace

uint64_t BlockSizeFor(const Config& config) {
  const uint64_t item = layout::ItemSize(config.key_names().typical_size(), config.value_size);
  const uint32_t size_class = layout::SizeClassFor(item);
  return size_class == layout::kRunClass ? item : layout::BlockSize(size_class);
}

absl::StatusOr<std::unique_ptr<RawSide>> RawSide::Start(const std::string& server,
                                                        uint64_t region_size,
                                                        const RawInitiatorOptions& options,
                                                        uint32_t connections) {
  VERBENA_ASSIGN_OR_RETURN(NetAddress address, NetAddress::Parse(server));
  if (!address.IsLocal()) {
    return absl::FailedPreconditionError(
        absl::StrCat("plain READs need the server on this host; ", server, " is not"));
  }
  address.set_port(0);
  std::unique_ptr<RawSide> side(new RawSide);
  VERBENA_ASSIGN_OR_RETURN(
      side->process_,
      ChildProcess::Start(
          OwnFolder() + "/verbena-bench",
          {"raw-target", options.fabric, address.ToString(), absl::StrCat(region_size),
           absl::StrCat(options.request_size), absl::StrCat(options.response_size),
           absl::StrCat(options.target_poll_ns), absl::StrCat(connections)},
          ""));
  VERBENA_ASSIGN_OR_RETURN(const auto port, ReadAnswer(side->process_, "PORT", 1));
  address.set_port(static_cast<uint16_t>(port[0]));
  for (uint32_t i = 0; i < connections; ++i) {
    VERBENA_ASSIGN_OR_RETURN(auto initiator, RawInitiator::Connect(address, options));
    side->initiators_.push_back(std::move(initiator));
  }
  VERBENA_ASSIGN_OR_RETURN(const auto region, ReadAnswer(side->process_, "REGION", 2));
  for (const auto& initiator : side->initiators_) {
    initiator->SetRegion(region[0], static_cast<uint32_t>(region[1]));
  }
  return side;
}

RawSide::~RawSide() {
  initiators_.clear();
  process_.Stop();
}

}  // namespace verbena::bench

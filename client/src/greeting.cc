#include "client/src/greeting.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/causes.h"
#include "client/src/waiter.h"
#include "common/base/clock.h"
#include "common/base/macros.h"
#include "common/layout/directory.h"
#include "common/layout/item.h"
#include "common/layout/region_header.h"
#include "common/verbs/data_path.h"
#include "common/verbs/errors.h"

namespace verbena::client {
namespace {

// A directory of at most this many bytes is READ whole.
constexpr uint64_t kEagerDirectory = 64 * 1024;

class Greeter {
 public:
  Greeter(Endpoint& endpoint, const GreetOptions& options)
      : endpoint_(endpoint), options_(options) {}

  absl::StatusOr<Greeting> Run() {
    VERBENA_ASSIGN_OR_RETURN(waiter_, Waiter::Create());
    VERBENA_RETURN_IF_ERROR(endpoint_.WatchedBy(*waiter_));
    VERBENA_RETURN_IF_ERROR(SayHello());
    VERBENA_RETURN_IF_ERROR(TakeLimits());
    VERBENA_RETURN_IF_ERROR(OpenSlice());
    if (options_.want_directory) VERBENA_RETURN_IF_ERROR(ReadDirectory());
    return std::move(greeting_);
  }

 private:
  absl::Status SayHello() {
    wire::Hello hello{};
    hello.receive_size = Endpoint::kMessageBytes;
    hello.receive_count = endpoint_.receives();
    hello.operations = options_.operations;
    const std::span<uint8_t> buffer = endpoint_.send_buffer(0);
    wire::RequestWriter writer(buffer);
    wire::OperationHeader header{};  // a hello is of the connection: its sequence number is 0
    header.code = static_cast<uint8_t>(wire::OpCode::kHello);
    writer.Add(header, {}, wire::AsValue(hello));
    writer.Finish(0, 0);
    ibv_sge sge =
        verbs::MakeSge(buffer.data(), static_cast<uint32_t>(writer.size()), endpoint_.lkey());
    ibv_send_wr request = verbs::MakeSend(
        Endpoint::SendId(endpoint_.PostNumber(/*signalled=*/true)), &sge, IBV_SEND_SIGNALED);
    VERBENA_RETURN_IF_ERROR(Posted(verbs::PostSend(endpoint_.qp(), &request)));
    VERBENA_RETURN_IF_ERROR(Await([this] { return answered_ && sent_; }));
    const absl::StatusOr<wire::Welcome> welcome = wire::DecodeWelcome(answer_);
    if (!welcome.ok()) return NoSense(welcome.status());
    greeting_.welcome = *welcome;
    return absl::OkStatus();
  }

  absl::Status TakeLimits() {
    const wire::Welcome& welcome = greeting_.welcome;
    if (welcome.layout != layout::kLayoutVersion) {
      return Final(absl::FailedPreconditionError(
          absl::StrCat("the slice of the server at ", endpoint_.server(), " has layout version ",
                       welcome.layout, ", this client reads version ", layout::kLayoutVersion)));
    }
    ServerLimits& limits = greeting_.limits;
    limits.max_key_size = std::min<uint32_t>(welcome.max_key_size, layout::kMaxKeySize);
    limits.max_value_size = std::min(welcome.max_value_size, layout::kMaxValueSize);
    limits.window = std::min<uint32_t>(welcome.window, endpoint_.max_requests());
    greeting_.max_message = std::min(welcome.max_message, Endpoint::kMessageBytes);
    // What every message must have room for: an operation on the longest key.
    const auto fixed = static_cast<uint32_t>(
        sizeof(wire::RequestHeader) +
        wire::OperationSize(limits.max_key_size, sizeof(wire::ValueReference)));
    if (greeting_.max_message < fixed) {
      return Final(absl::FailedPreconditionError(
          absl::StrCat("the server takes messages of ", welcome.max_message,
                       " bytes; a request may need ", fixed)));
    }
    limits.eager_limit =
        std::min(welcome.eager_limit,
                 static_cast<uint32_t>(greeting_.max_message - sizeof(wire::RequestHeader) -
                                       wire::OperationSize(limits.max_key_size, 0)));
    return absl::OkStatus();
  }

  absl::Status OpenSlice() {
    const wire::Welcome& welcome = greeting_.welcome;
    if (welcome.region_size < layout::kRegionHeaderSize) {
      return Final(absl::InternalError(
          absl::StrCat("the server's slice has only ", welcome.region_size, " bytes")));
    }
    VERBENA_ASSIGN_OR_RETURN(const uint8_t* const bytes, Read(0, sizeof(layout::RegionHeader)));
    layout::RegionHeader header;
    std::memcpy(&header, bytes, sizeof(header));
    absl::StatusOr<SliceShape> shape = SliceShape::FromHeader(
        header, welcome.region_size, welcome.epoch,
        layout::ItemSize(greeting_.limits.max_key_size, greeting_.limits.max_value_size));
    if (!shape.ok()) return Final(shape.status());
    greeting_.shape = *shape;
    return absl::OkStatus();
  }

  absl::Status ReadDirectory() {
    const SliceShape& shape = greeting_.shape;
    if (shape.directory_size() > kEagerDirectory) return absl::OkStatus();
    constexpr size_t kWords = layout::kEntriesPerDirectoryPage;
    for (uint64_t at = 0; at < shape.directory_size(); at += layout::kDirectoryPageSize) {
      VERBENA_ASSIGN_OR_RETURN(const uint8_t* const page,
                               Read(shape.directory_offset + at, layout::kDirectoryPageSize));
      greeting_.directory.resize(greeting_.directory.size() + kWords);
      std::memcpy(greeting_.directory.data() + greeting_.directory.size() - kWords, page,
                  kWords * sizeof(uint64_t));
      ++greeting_.reads;
    }
    return absl::OkStatus();
  }

  // READs `length` bytes, at most a sink's block; they stay until the next READ.
  absl::StatusOr<const uint8_t*> Read(uint64_t offset, uint32_t length) {
    uint8_t* const target = endpoint_.sink(0)->block.data();
    ibv_sge sge = verbs::MakeSge(target, length, endpoint_.lkey());
    ibv_send_wr request =
        verbs::MakeRead(WrId(RequestKind::kRead, {0, 1}).bits(), &sge,
                        greeting_.welcome.region_address + offset, greeting_.welcome.region_rkey);
    read_number_ = endpoint_.PostNumber(/*signalled=*/true);
    VERBENA_RETURN_IF_ERROR(Posted(verbs::PostSend(endpoint_.qp(), &request)));
    read_done_ = false;
    VERBENA_RETURN_IF_ERROR(Await([this] { return read_done_; }));
    return target;
  }

  // A verb that fails on a broken connection may do so with any errno.
  static absl::Status Posted(int returned) {
    const absl::Status status = verbs::FromReturn(returned, "ibv_post_send");
    return status.ok() ? status : absl::UnavailableError(status.message());
  }

  template <typename Done>
  absl::Status Await(Done&& done) {
    while (true) {
      VERBENA_ASSIGN_OR_RETURN(bool some, TakeCompletions());
      if (done()) return absl::OkStatus();
      if (some) continue;
      const int64_t now = MonotonicNanos();
      if (now >= options_.deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat("the server at ", endpoint_.server(),
                         " accepted the connection, but does not answer in the time allowed"));
      }
      if (options_.cancelled != nullptr && options_.cancelled->load()) {
        return absl::CancelledError("connecting was given up");
      }
      VERBENA_RETURN_IF_ERROR(endpoint_.CheckEvents());
      VERBENA_RETURN_IF_ERROR(endpoint_.Arm());
      VERBENA_ASSIGN_OR_RETURN(some, TakeCompletions());
      if (!some) endpoint_.Sleep(*waiter_, std::min(options_.deadline, now + kCancelInterval));
    }
  }

  // Whether there were some.
  absl::StatusOr<bool> TakeCompletions() {
    std::array<ibv_wc, 8> completions;
    const int count = verbs::Poll(endpoint_.cq(), completions);
    if (count < 0) return absl::UnavailableError("the completion queue has failed");
    for (int i = 0; i < count; ++i) {
      VERBENA_RETURN_IF_ERROR(Take(completions[static_cast<size_t>(i)]));
    }
    return count > 0;
  }

  absl::Status Take(const ibv_wc& wc) {
    const WrId id(wc.wr_id);
    if (wc.status != IBV_WC_SUCCESS) {
      return verbs::WcError(wc, absl::StrCat("the first message to the server at ",
                                             endpoint_.server(), ", or a READ of its slice"));
    }
    if (id.kind == RequestKind::kSend) {
      endpoint_.Retire(Endpoint::SendNumber(id));
      sent_ = true;
    } else if (id.kind == RequestKind::kRead) {
      endpoint_.Retire(read_number_);
      read_done_ = true;
    } else if (id.ref.slot < endpoint_.receives()) {
      if (wc.byte_len > Endpoint::kMessageBytes) {
        return NoSense(absl::InternalError("a message is longer than its buffer"));
      }
      VERBENA_RETURN_IF_ERROR(OnMessage(endpoint_.received(id.ref.slot, wc.byte_len)));
      const int error = endpoint_.PostReceive(id.ref.slot);
      if (error != 0) {
        return absl::UnavailableError(verbs::ErrnoStatus(error, "ibv_post_recv", {}).message());
      }
    }
    return absl::OkStatus();
  }

  absl::Status OnMessage(std::span<const uint8_t> bytes) {
    absl::StatusOr<wire::ResponseReader> reader = wire::ResponseReader::Open(bytes);
    if (!reader.ok()) return NoSense(reader.status());
    greeting_.grant = reader->header().grant;
    const absl::StatusOr<std::optional<wire::Result>> result = reader->Next();
    if (!result.ok()) return NoSense(result.status());
    if (!result->has_value()) return absl::OkStatus();
    const auto code = static_cast<wire::ResultCode>((*result)->header.code);
    if (answered_ || (*result)->header.sequence != 0 || code != wire::ResultCode::kOk) {
      return NoSense(absl::InternalError("it is no welcome"));
    }
    answered_ = true;
    answer_ = std::string((*result)->value);
    return absl::OkStatus();
  }

  static absl::Status NoSense(const absl::Status& status) {
    return Final(absl::InternalError(
        absl::StrCat("the server's answer to hello makes no sense: ", status.message())));
  }

  Endpoint& endpoint_;
  const GreetOptions& options_;
  std::unique_ptr<Waiter> waiter_;
  Greeting greeting_;
  std::string answer_;
  bool answered_ = false;
  bool sent_ = false;
  bool read_done_ = false;
  uint64_t read_number_ = 0;
};

}  // namespace

absl::StatusOr<Greeting> Greet(Endpoint& endpoint, const GreetOptions& options) {
  return Greeter(endpoint, options).Run();
}

}  // namespace verbena::client

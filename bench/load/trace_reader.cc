#include "bench/load/trace_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"

namespace verbena::bench {
namespace {

constexpr size_t kChunk = 65536;
// How long the thread may take to notice that it is not wanted any more.
constexpr int kPollMillis = 20;
// About 30 years: as late as never, and far from what overflows as ticks of any processor.
constexpr double kNeverNanos = 1e18;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

absl::Status Refused(const std::string& path, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--trace=", path, " is not allowed: ", ToAbsl(why)));
}

// For whoever gives the compressed file itself; empty if it does not look like one.
std::string CompressedBy(int file) {
  std::array<char, 4> begin{};
  if (pread(file, begin.data(), begin.size(), 0) != static_cast<ssize_t>(begin.size())) return "";
  const std::string_view bytes(begin.data(), begin.size());
  if (bytes == "\x28\xb5\x2f\xfd") return "zstd";
  if (bytes.substr(0, 2) == "\x1f\x8b") return "gzip";
  if (bytes == std::string_view("\xfd\x37zX", 4)) return "xz";
  return bytes.substr(0, 3) == "BZh" ? "bzip2" : "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<TraceReader>> TraceReader::Open(TraceOptions options) {
  const std::string& path = options.path;
  // A pipe without a writer would hold up the opening. (What is a socket can only be taken over.)
  UniqueFd file(path == "/dev/stdin" ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                     : open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat facts {};
  if (!file.valid() || fstat(file.get(), &facts) != 0) {
    return Refused(path, absl::StrCat("it cannot be read: ", std::strerror(errno)));
  }
  if (S_ISDIR(facts.st_mode)) return Refused(path, "it is a folder");
  if (S_ISREG(facts.st_mode)) {
    const std::string tool = CompressedBy(file.get());
    if (!tool.empty()) {
      return Refused(path, absl::StrCat("it is compressed: ", tool, " -dc ", path,
                                        " | verbena-bench run --trace=/dev/stdin ..."));
    }
  }
  std::unique_ptr<TraceReader> reader(new TraceReader(std::move(options), std::move(file)));
  reader->thread_ = std::thread([raw = reader.get()] { raw->Read(); });
  return reader;
}

TraceReader::~TraceReader() {
  {
    std::lock_guard lock(mutex_);
    abandoned_.store(true, std::memory_order_relaxed);
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

TraceReader::Taken TraceReader::Take(TraceBatch* batch) {
  {
    std::lock_guard lock(mutex_);
    if (ready_.empty()) return over_ ? Taken::kOver : Taken::kNothingYet;
    if (begin_ticks_ == 0) begin_ticks_ = clock_.Now();
    batch->begin_ticks_ = begin_ticks_;
    if (spare_.size() < kReady) spare_.push_back(std::move(batch->requests_));
    batch->requests_ = std::move(ready_.front());
    batch->next_ = 0;
    ready_.pop_front();
    facts_.requests += batch->requests_.size();
  }
  changed_.notify_all();
  return Taken::kSome;
}

void TraceReader::GiveBack(const TraceBatch& batch) {
  std::lock_guard lock(mutex_);
  facts_.requests -= batch.size();
}

void TraceReader::Await(std::chrono::nanoseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [this] { return !ready_.empty() || over_; });
}

bool TraceReader::starved() const {
  std::lock_guard lock(mutex_);
  return ready_.empty() && !over_;
}

TraceFacts TraceReader::facts() const {
  std::lock_guard lock(mutex_);
  return facts_;
}

void TraceReader::Read() {
  std::vector<char> chunk(kChunk);
  std::string unreadable;
  while (!ended_ && AwaitFile()) {
    const ssize_t count = read(file_.get(), chunk.data(), chunk.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) {
      unreadable = absl::StrCat("line ", number_ + 1, ": ", std::strerror(errno));
      break;
    }
    if (count == 0) {  // the last line may have no end
      if (!line_.empty() || line_too_long_) TakeLine(line_);
      break;
    }
    TakeBytes({chunk.data(), static_cast<size_t>(count)});
    Deliver();  // there may be nothing more for long
  }
  Deliver();
  {
    std::lock_guard lock(mutex_);
    over_ = true;
    facts_.lines = lines_;
    facts_.unreadable = std::move(unreadable);
  }
  changed_.notify_all();
}

// False: nobody wants more of it.
bool TraceReader::AwaitFile() {
  while (!abandoned_.load(std::memory_order_relaxed)) {
    pollfd wanted{.fd = file_.get(), .events = POLLIN, .revents = 0};
    // Whatever else poll says, read says better.
    if (poll(&wanted, 1, kPollMillis) > 0) return true;
  }
  return false;
}

void TraceReader::TakeBytes(std::string_view bytes) {
  while (!bytes.empty() && !ended_) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    const bool whole = end != std::string_view::npos;
    bytes.remove_prefix(whole ? end + 1 : bytes.size());
    if (whole && line_.empty() && !line_too_long_) {
      TakeLine(piece);
      continue;
    }
    // What is too long already is too long whatever follows. (2 for CRLF.)
    if (line_.size() + piece.size() > kMaxTraceLine + 2) {
      line_too_long_ = true;
    } else {
      line_ += piece;
    }
    if (whole) {
      TakeLine(line_);
      line_.clear();
    }
  }
}

void TraceReader::TakeLine(std::string_view line) {
  ++number_;
  if (number_ == 1 && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.empty() && !line_too_long_) return;
  ++lines_;
  if (line_too_long_) {
    line_too_long_ = false;
    return BadLine(absl::StrCat("it is longer than ", kMaxTraceLine, " characters"));
  }
  if (filling_.size() == filled_) filling_.emplace_back();
  const absl::Status status = ParseTraceLine(line, &filling_[filled_]);
  if (!status.ok()) return BadLine(ToStd(status.message()));
  TakeRequest();
}

// The one behind the last that is filled.
void TraceReader::TakeRequest() {
  TraceRequest& request = filling_[filled_];
  request.due_nanos = 0;
  if (options_.speed > 0) {
    if (first_seconds_ < 0) first_seconds_ = request.seconds;
    const double since = std::max(0.0, request.seconds - first_seconds_) / options_.speed;
    // Requests keep their order: one with an earlier timestamp than the last is due with that.
    last_due_ = std::max(last_due_, static_cast<int64_t>(std::min(since * 1e9, kNeverNanos)));
    request.due_nanos = last_due_;
  }
  ++requests_;
  if (options_.limit != 0 && requests_ == options_.limit) ended_ = true;
  if (++filled_ == kBatch) Deliver();
}

void TraceReader::BadLine(std::string_view reason) {
  std::lock_guard lock(mutex_);
  facts_.lines = lines_;
  ++facts_.bad_lines;
  if (facts_.reasons.size() < TraceFacts::kReasons) {
    facts_.reasons.push_back(absl::StrCat("line ", number_, ": ", ToAbsl(reason)));
  }
  if (options_.strict) facts_.stopped = ended_ = true;
}

// Hands over what is filled, as soon as there is room.
void TraceReader::Deliver() {
  if (filled_ == 0) return;
  filling_.resize(filled_);
  filled_ = 0;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] {
      return ready_.size() < kReady || abandoned_.load(std::memory_order_relaxed);
    });
    facts_.lines = lines_;
    ready_.push_back(std::move(filling_));
    filling_.clear();
    if (!spare_.empty()) {
      filling_ = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  changed_.notify_all();
}

}  // namespace verbena::bench

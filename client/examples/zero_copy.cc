// Values without copies: the adapter reads them to where the program wants them, and the server
// reads large ones from where they lie.
//
//   verbena-example-zero-copy 127.0.0.1:7400
//
// Memory is registered once, which takes system calls and locks it, and then used again and again:
// here as a picture that is put, and a frame that pictures are got into.
//
// Exit status: 0 if the picture came back as it was, 1 if not, 2 for wrong usage, 3 if the server
// cannot be reached.

#include <cstddef>
#include <cstring>
#include <iostream>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "verbena/buffer.h"
#include "verbena/connection.h"

namespace {

constexpr size_t kPictureSize = 256 * 1024;  // a "large" value: more than ServerLimits::eager_limit

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::Status ShowPicture(verbena::Connection& connection) {
  // One piece of memory for both; parts of it are used as they are needed.
  std::vector<std::byte> memory(2 * kPictureSize);
  const std::span<std::byte> picture = std::span(memory).first(kPictureSize);
  const std::span<std::byte> frame = std::span(memory).last(kPictureSize);
  for (size_t i = 0; i < picture.size(); ++i) picture[i] = static_cast<std::byte>(i * 7 + i / 256);

  // The memory stays registered as long as `buffer` lives, and must stay where it is so long.
  absl::StatusOr<verbena::Buffer> buffer = connection.RegisterBuffer(memory);
  if (!buffer.ok()) return buffer.status();

  // The server READs the value out of `picture`, since that is registered.
  if (auto put = connection.Put("example/picture", Text(picture)); !put.ok()) return put.status();

  // The value lands in `frame`. After an error, and behind the value, `frame` holds garbage.
  size_t size = 0;
  if (absl::Status status = connection.GetInto("example/picture", frame, &size); !status.ok()) {
    return status;
  }
  if (size != picture.size() || std::memcmp(frame.data(), picture.data(), size) != 0) {
    return absl::DataLossError("the picture came back changed");
  }

  // What does not fit is told with its size.
  if (absl::Status status = connection.GetInto("example/picture", frame.first(1000), &size);
      !absl::IsOutOfRange(status) || size != kPictureSize) {
    return absl::InternalError("a picture in too small a frame: " + status.ToString());
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "Usage: verbena-example-zero-copy ADDR:PORT\n";
    return 2;
  }
  auto connection = verbena::Connection::Connect(argv[1], verbena::Options{});
  if (!connection.ok()) {
    std::cerr << "verbena-example-zero-copy: " << connection.status() << "\n";
    return 3;
  }
  if (const absl::Status status = ShowPicture(**connection); !status.ok()) {
    std::cerr << "verbena-example-zero-copy: " << status << "\n";
    return 1;
  }
  const verbena::ConnectionStats& stats = (*connection)->stats();
  std::cout << "a picture of " << kPictureSize << " bytes: " << stats.puts_without_copy
            << " put without a copy, got: " << stats.gets_without_copy << " without, "
            << stats.gets_copied << " with one\n";
  return 0;
}

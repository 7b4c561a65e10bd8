// The byte ring that carries messages of one direction of a connection. One producer, one consumer,
// in different processes or the same.
//
// A packet is a header word and its payload, padded to whole cache lines:
//
//   bytes 0..7   header: bit 0 always 1; kPacket* flags; payload bytes (16..31); immediate (32..63)
//   bytes 8..    payload
//
// The header is stored last (release). There is no tail in shared memory: the consumer knows where
// the next header must appear and finds 0 there until it does, because it zeroes the first word of
// every line that it consumes before it gives the lines back by moving `head`. A small message thus
// costs one transfer of a cache line. A message longer than one packet is cut into several.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace verbena::softverbs {

inline constexpr size_t kRingLine = 64;
inline constexpr size_t kRingBytes = 64 * 1024;
inline constexpr size_t kPacketHeader = 8;
// As an MTU of 4096.
inline constexpr size_t kMaxPayload = 4096;

using RingData = std::array<uint8_t, kRingBytes>;

enum PacketFlags : uint32_t {
  kPacketFirst = 1u << 1,
  kPacketLast = 1u << 2,
  kPacketSolicited = 1u << 3,
  kPacketImmediate = 1u << 4,
  // The requester wants to be told at once when the message is completed.
  kPacketAckRequest = 1u << 5,
  // The data went by WRITE; the payload is its length (4 bytes).
  kPacketWrite = 1u << 6,
};

struct PacketHeader {
  uint32_t flags = 0;
  uint32_t length = 0;  // of the payload
  uint32_t immediate = 0;
};

inline constexpr uint64_t EncodeHeader(const PacketHeader& h) {
  return uint64_t{1} | (h.flags & 0xfffeu) | uint64_t{h.length} << 16 | uint64_t{h.immediate} << 32;
}
inline constexpr PacketHeader DecodeHeader(uint64_t word) {
  return {static_cast<uint32_t>(word & 0xfffeu), static_cast<uint32_t>(word >> 16 & 0xffffu),
          static_cast<uint32_t>(word >> 32)};
}
inline constexpr size_t PacketBytes(size_t payload) {
  return (kPacketHeader + payload + kRingLine - 1) / kRingLine * kRingLine;
}

inline std::atomic_ref<uint64_t> RingWord(RingData& ring, uint64_t position) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(&ring[position % kRingBytes]));
}

// The producer's private end. Not thread-safe.
class RingProducer {
 public:
  // Whether `payload` bytes fit now; looks at the consumer's `head` only if it must.
  bool HasSpace(const std::atomic<uint64_t>& head, size_t payload) {
    const size_t need = PacketBytes(payload);
    if (tail_ + need - head_ <= kRingBytes) return true;
    // A head that lies (behind the last one, or ahead of the tail) counts as no space.
    const uint64_t now = head.load(std::memory_order_acquire);
    if (now - head_ <= tail_ - head_) head_ = now;
    return tail_ + need - head_ <= kRingBytes;
  }

  // Copies bytes into the payload of the packet that Publish will show, at `offset` in it.
  void Write(RingData& ring, size_t offset, const void* data, size_t size) const {
    const size_t at = (tail_ + kPacketHeader + offset) % kRingBytes;
    const size_t first = std::min(size, kRingBytes - at);
    std::memcpy(&ring[at], data, first);
    if (first < size) {
      std::memcpy(ring.data(), static_cast<const uint8_t*>(data) + first, size - first);
    }
  }

  void Publish(RingData& ring, const PacketHeader& header) {
    RingWord(ring, tail_).store(EncodeHeader(header), std::memory_order_release);
    tail_ += PacketBytes(header.length);
  }

 private:
  uint64_t tail_ = 0;
  uint64_t head_ = 0;
};

// The consumer's private end. Not thread-safe.
class RingConsumer {
 public:
  // The next packet's header word, 0 if there is none.
  uint64_t Peek(RingData& ring) const {
    return RingWord(ring, head_).load(std::memory_order_acquire);
  }

  void Read(const RingData& ring, size_t offset, void* data, size_t size) const {
    const size_t at = (head_ + kPacketHeader + offset) % kRingBytes;
    const size_t first = std::min(size, kRingBytes - at);
    std::memcpy(data, &ring[at], first);
    if (first < size) {
      std::memcpy(static_cast<uint8_t*>(data) + first, ring.data(), size - first);
    }
  }

  // Gives the lines of a packet back, but keeps that to itself until PublishHead.
  void Consume(RingData& ring, size_t payload) {
    const size_t size = PacketBytes(payload);
    for (size_t at = 0; at < size; at += kRingLine) {
      RingWord(ring, head_ + at).store(0, std::memory_order_relaxed);
    }
    head_ += size;
  }

  void PublishHead(std::atomic<uint64_t>& head) const {
    head.store(head_, std::memory_order_release);
  }
  uint64_t head() const { return head_; }

 private:
  uint64_t head_ = 0;
};

}  // namespace verbena::softverbs

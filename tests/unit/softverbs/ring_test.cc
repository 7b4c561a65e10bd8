#include "common/softverbs/ring.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace verbena::softverbs {
namespace {

struct alignas(kRingLine) Shared {
  std::atomic<uint64_t> head{0};
  alignas(kRingLine) RingData ring{};
};

TEST(PacketHeaderTest, RoundTrip) {
  const PacketHeader header = {kPacketFirst | kPacketLast | kPacketImmediate, 4096, 0xdeadbeef};
  const uint64_t word = EncodeHeader(header);
  EXPECT_NE(word, 0u);
  const PacketHeader back = DecodeHeader(word);
  EXPECT_EQ(back.flags, header.flags);
  EXPECT_EQ(back.length, header.length);
  EXPECT_EQ(back.immediate, header.immediate);
  EXPECT_NE(EncodeHeader({}), 0u) << "an empty packet is not an empty line";
}

TEST(RingTest, PacketsFillWholeLines) {
  EXPECT_EQ(PacketBytes(0), 64u);
  EXPECT_EQ(PacketBytes(56), 64u);
  EXPECT_EQ(PacketBytes(57), 128u);
  EXPECT_EQ(kRingBytes % kRingLine, 0u);
}

TEST(RingTest, FillsUpAndDrains) {
  auto shared = std::make_unique<Shared>();
  RingProducer producer;
  RingConsumer consumer;
  const std::vector<uint8_t> data(kMaxPayload, 0xff);
  size_t packets = 0;
  while (producer.HasSpace(shared->head, kMaxPayload)) {
    producer.Write(shared->ring, 0, data.data(), data.size());
    producer.Publish(shared->ring, {kPacketFirst, kMaxPayload, 0});
    ++packets;
  }
  EXPECT_EQ(packets, kRingBytes / PacketBytes(kMaxPayload));
  for (size_t i = 0; i < packets; ++i) {
    ASSERT_NE(consumer.Peek(shared->ring), 0u);
    consumer.Consume(shared->ring, kMaxPayload);
  }
  EXPECT_EQ(consumer.Peek(shared->ring), 0u) << "payload of an old lap is no header";
  EXPECT_FALSE(producer.HasSpace(shared->head, kMaxPayload)) << "not given back yet";
  consumer.PublishHead(shared->head);
  EXPECT_TRUE(producer.HasSpace(shared->head, kMaxPayload));
}

TEST(RingTest, HeadOfALyingConsumerGivesNoSpace) {
  auto shared = std::make_unique<Shared>();
  RingProducer producer;
  while (producer.HasSpace(shared->head, kMaxPayload)) {
    producer.Publish(shared->ring, {0, kMaxPayload, 0});
  }
  shared->head = uint64_t{1} << 40;
  EXPECT_FALSE(producer.HasSpace(shared->head, kMaxPayload));
}

// Every size at every place of the ring, with payloads of all ones (which look like headers).
TEST(RingTest, ThreadsPassPacketsOfAllSizes) {
  auto shared = std::make_unique<Shared>();
  constexpr uint32_t kPackets = 20'000;
  std::thread thread([&] {
    RingProducer producer;
    std::minstd_rand random(1);
    std::vector<uint8_t> data(kMaxPayload, 0xff);
    for (uint32_t i = 0; i < kPackets;) {
      const auto size = static_cast<uint32_t>(random() % (kMaxPayload + 1));
      while (!producer.HasSpace(shared->head, size)) std::this_thread::yield();
      if (size >= 4) std::memcpy(data.data() + size - 4, &i, 4);
      producer.Write(shared->ring, 0, data.data(), size / 2);
      producer.Write(shared->ring, size / 2, data.data() + size / 2, size - size / 2);
      producer.Publish(shared->ring, {kPacketFirst | kPacketLast, size, i++});
      if (size >= 4) std::memset(data.data() + size - 4, 0xff, 4);
    }
  });
  RingConsumer consumer;
  std::minstd_rand random(1);
  std::vector<uint8_t> data(kMaxPayload);
  bool good = true;
  for (uint32_t i = 0; i < kPackets;) {
    const uint64_t word = consumer.Peek(shared->ring);
    if (word == 0) {
      std::this_thread::yield();
      continue;
    }
    const PacketHeader header = DecodeHeader(word);
    const auto size = static_cast<uint32_t>(random() % (kMaxPayload + 1));
    good = good && header.length == size && header.immediate == i;
    consumer.Read(shared->ring, 0, data.data(), size);
    uint32_t number = i;
    if (size >= 4) std::memcpy(&number, data.data() + size - 4, 4);
    good = good && number == i && (size < 5 || data[0] == 0xff);
    consumer.Consume(shared->ring, size);
    consumer.PublishHead(shared->head);
    ++i;
  }
  thread.join();
  EXPECT_TRUE(good);
}

}  // namespace
}  // namespace verbena::softverbs

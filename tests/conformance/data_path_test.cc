// SEND, RECV, READ, WRITE, atomics: data, completions and their order.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include "tests/conformance/endpoint.h"

namespace verbena::conformance {
namespace {

void Fill(uint8_t* data, size_t size, uint8_t seed) {
  for (size_t i = 0; i < size; ++i) data[i] = static_cast<uint8_t>(seed + i * 7 + i / 251);
}

TEST(DataPathTest, SendReceivesIntoPostedBuffer) {
  Pair pair;
  ASSERT_EQ(pair.server->PostRecv(7, 4096, 512), 0);
  Fill(pair.client->data, 300, 3);
  ASSERT_EQ(pair.client->PostSend(9, 0, 300), 0);
  const ibv_wc received = pair.server->Wait();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.wr_id, 7u);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.byte_len, 300u);
  EXPECT_EQ(received.qp_num, pair.server->qp->qp_num);
  EXPECT_EQ(received.src_qp, pair.client->qp->qp_num);
  EXPECT_EQ(std::memcmp(pair.server->data + 4096, pair.client->data, 300), 0);
  const ibv_wc sent = pair.client->Wait();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.wr_id, 9u);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
}

TEST(DataPathTest, SendThroughSrq) {
  Options options;
  options.srq_wr = 16;
  Pair pair({}, options);
  ASSERT_EQ(pair.server->PostSrqRecv(1, 0, 128), 0);
  ASSERT_EQ(pair.server->PostSrqRecv(2, 128, 128), 0);
  std::memcpy(pair.client->data, "hello", 5);
  ASSERT_EQ(pair.client->PostSend(1, 0, 5), 0);
  ASSERT_EQ(pair.client->PostSend(2, 0, 5), 0);
  EXPECT_EQ(pair.server->Wait().wr_id, 1u);
  EXPECT_EQ(pair.server->Wait().wr_id, 2u);
  EXPECT_EQ(std::memcmp(pair.server->data + 128, "hello", 5), 0);
  EXPECT_NE(pair.server->PostRecv(3, 0, 64), 0) << "a QP with an SRQ has no receive queue";
}

TEST(DataPathTest, ReadFetchesRemoteBytes) {
  Pair pair;
  Fill(pair.server->data, 10000, 5);
  for (const uint32_t size : {1u, 8u, 63u, 64u, 100u, 1000u, 4096u, 9001u}) {
    std::memset(pair.client->data, 0, 20000);
    ASSERT_EQ(pair.client->PostRead(size, 1, size, Address(*pair.server, 3), pair.server->mr->rkey),
              0);
    const ibv_wc wc = pair.client->Wait();
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, size);
    EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
    EXPECT_EQ(wc.byte_len, size);
    EXPECT_EQ(std::memcmp(pair.client->data + 1, pair.server->data + 3, size), 0);
    EXPECT_EQ(pair.client->data[0], 0);
    EXPECT_EQ(pair.client->data[size + 1], 0);
  }
  EXPECT_TRUE(pair.server->Quiet(1)) << "a READ leaves no completion at its target";
}

TEST(DataPathTest, MessageLongerThanTheTargetTakesAtOnceIsStreamed) {
  Pair pair;
  Fill(pair.client->data, 500'000, 9);
  ASSERT_EQ(pair.server->PostRecv(1, 0, 500'000), 0);
  ASSERT_EQ(pair.client->PostSend(2, 0, 500'000), 0);
  const ibv_wc received = pair.server->Wait();
  ASSERT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.byte_len, 500'000u);
  EXPECT_EQ(std::memcmp(pair.server->data, pair.client->data, 500'000), 0);
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_SUCCESS);
}

TEST(DataPathTest, GatherAndScatter) {
  Pair pair;
  Fill(pair.client->data, 1000, 1);
  std::array<ibv_sge, 3> out = {pair.client->Sge(0, 10), pair.client->Sge(500, 0),
                                pair.client->Sge(100, 90)};
  std::array<ibv_sge, 2> in = {pair.server->Sge(2000, 64), pair.server->Sge(3000, 64)};
  ibv_recv_wr receive = {1, nullptr, in.data(), 2};
  ibv_recv_wr* bad_receive;
  ASSERT_EQ(ibv_post_recv(pair.server->qp, &receive, &bad_receive), 0);
  ibv_send_wr wr{};
  wr.sg_list = out.data();
  wr.num_sge = 3;
  wr.opcode = IBV_WR_SEND;
  ASSERT_EQ(pair.client->Post(&wr), 0);
  EXPECT_EQ(pair.server->Wait().byte_len, 100u);
  EXPECT_EQ(std::memcmp(pair.server->data + 2000, pair.client->data, 10), 0);
  EXPECT_EQ(std::memcmp(pair.server->data + 2010, pair.client->data + 100, 54), 0);
  EXPECT_EQ(std::memcmp(pair.server->data + 3000, pair.client->data + 154, 36), 0);
  // READ into two pieces.
  Fill(pair.server->data, 100, 77);
  std::array<ibv_sge, 2> pieces = {pair.client->Sge(5000, 30), pair.client->Sge(6000, 70)};
  wr = {};
  wr.sg_list = pieces.data();
  wr.num_sge = 2;
  wr.opcode = IBV_WR_RDMA_READ;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = Address(*pair.server, 0);
  wr.wr.rdma.rkey = pair.server->mr->rkey;
  ASSERT_EQ(pair.client->Post(&wr), 0);
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(pair.client->data + 5000, pair.server->data, 30), 0);
  EXPECT_EQ(std::memcmp(pair.client->data + 6000, pair.server->data + 30, 70), 0);
}

TEST(DataPathTest, ZeroLengthSend) {
  Pair pair;
  ASSERT_EQ(pair.server->PostRecv(1, 0, 16), 0);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  ASSERT_EQ(pair.client->Post(&wr), 0);
  EXPECT_EQ(pair.server->Wait().byte_len, 0u);
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_SUCCESS);
}

TEST(DataPathTest, InlineDataIsTakenAtPostAndNeedsNoKey) {
  Pair pair;
  // No RECV yet: the message waits, and the buffer is overwritten meanwhile.
  std::array<char, 32> text = {"inline text"};
  ibv_sge sge = {reinterpret_cast<uint64_t>(text.data()), 32, 0xdead};
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
  ASSERT_EQ(pair.client->Post(&wr), 0);
  text.fill('x');
  ASSERT_EQ(pair.server->PostRecv(1, 0, 64), 0);
  EXPECT_EQ(pair.server->Wait().status, IBV_WC_SUCCESS);
  EXPECT_STREQ(reinterpret_cast<char*>(pair.server->data), "inline text");
  sge = pair.client->Sge(0, pair.client->options.max_inline + 1);
  EXPECT_NE(pair.client->Post(&wr), 0) << "more than was granted";
  EXPECT_EQ(pair.client->Wait().status, IBV_WC_SUCCESS);
}

TEST(DataPathTest, ImmediateData) {
  Pair pair;
  ASSERT_EQ(pair.server->PostRecv(1, 0, 64), 0);
  ASSERT_EQ(pair.server->PostRecv(2, 64, 64), 0);
  ibv_sge sge = pair.client->Sge(0, 16);
  Fill(pair.client->data, 16, 40);
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.imm_data = 0x01020304;
  wr.send_flags = IBV_SEND_SIGNALED;
  ASSERT_EQ(pair.client->Post(&wr), 0);
  ibv_wc wc = pair.server->Wait();
  EXPECT_EQ(wc.imm_data, 0x01020304u);
  EXPECT_TRUE(wc.wc_flags & IBV_WC_WITH_IMM);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.imm_data = 0x05060708;
  wr.wr.rdma.remote_addr = Address(*pair.server, 9000);
  wr.wr.rdma.rkey = pair.server->mr->rkey;
  ASSERT_EQ(pair.client->Post(&wr), 0);
  wc = pair.server->Wait();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.imm_data, 0x05060708u);
  EXPECT_EQ(wc.byte_len, 16u);
  EXPECT_EQ(std::memcmp(pair.server->data + 9000, pair.client->data, 16), 0);
  EXPECT_EQ(pair.client->Wait().opcode, IBV_WC_SEND);
  EXPECT_EQ(pair.client->Wait().opcode, IBV_WC_RDMA_WRITE);
}

TEST(DataPathTest, WriteIsVisibleWhenALaterSendArrives) {
  Pair pair;
  for (uint64_t round = 0; round < 200; ++round) {
    ASSERT_EQ(pair.server->PostRecv(round, 64, 64), 0);
    std::memcpy(pair.client->data, &round, 8);
    ASSERT_EQ(
        pair.client->PostWrite(1, 0, 8, Address(*pair.server, 2048), pair.server->mr->rkey, 0), 0);
    ASSERT_EQ(pair.client->PostSend(2, 0, 8), 0);
    ASSERT_EQ(pair.server->Wait().status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(pair.server->data + 2048, &round, 8), 0);
    ASSERT_EQ(pair.client->Wait().wr_id, 2u);
  }
}

TEST(DataPathTest, WriteWaitsForEarlierMessages) {
  Pair pair;
  std::memset(pair.server->data, 0, 4096);
  std::memset(pair.client->data, 0x5a, 64);
  ASSERT_EQ(pair.client->PostSend(1, 0, 8), 0);  // no RECV: it waits
  ASSERT_EQ(pair.client->PostWrite(2, 0, 8, Address(*pair.server, 2048), pair.server->mr->rkey), 0);
  EXPECT_TRUE(pair.client->Quiet(20));
  EXPECT_EQ(pair.server->data[2048], 0);
  ASSERT_EQ(pair.server->PostRecv(1, 0, 64), 0);
  EXPECT_EQ(pair.server->Wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.client->Wait().wr_id, 1u);
  EXPECT_EQ(pair.client->Wait().wr_id, 2u);
  EXPECT_EQ(pair.server->data[2048], 0x5a);
}

TEST(DataPathTest, ReadCompletesAfterEarlierUnsignalledSend) {
  Pair pair;
  ASSERT_EQ(pair.client->PostSend(1, 0, 8, 0), 0);
  ASSERT_EQ(pair.client->PostRead(2, 64, 8, Address(*pair.server, 0), pair.server->mr->rkey), 0);
  EXPECT_TRUE(pair.client->Quiet(20)) << "completions come in posting order";
  ASSERT_EQ(pair.server->PostRecv(1, 0, 64), 0);
  EXPECT_EQ(pair.server->Wait().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.client->Wait().wr_id, 2u);
}

TEST(DataPathTest, SendCompletesThoughTheTargetPollsNothing) {
  Pair pair;
  ASSERT_EQ(pair.server->PostRecv(1, 0, 64), 0);
  ASSERT_EQ(pair.client->PostSend(2, 0, 8), 0);
  EXPECT_EQ(pair.client->Wait().wr_id, 2u);
  EXPECT_EQ(pair.server->Wait().wr_id, 1u);
}

TEST(DataPathTest, SlotsComeBackWhenALaterCompletionIsPolled) {
  Options options;
  options.max_send_wr = 4;
  Pair pair(options, {});
  const auto read = [&](uint64_t id, unsigned flags) {
    return pair.client->PostRead(id, 0, 8, Address(*pair.server, 0), pair.server->mr->rkey, flags);
  };
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(read(i, 0), 0);
  ASSERT_EQ(read(3, IBV_SEND_SIGNALED), 0);
  EXPECT_EQ(read(4, 0), ENOMEM) << "unsignalled requests occupy their slots until then";
  EXPECT_EQ(pair.client->Wait().wr_id, 3u);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(read(i, 0), 0);
  EXPECT_EQ(read(5, 0), ENOMEM);
}

TEST(DataPathTest, ListStopsAtTheFirstBadRequest) {
  Pair pair;
  std::array<ibv_send_wr, 3> wrs{};
  ibv_sge sge = pair.client->Sge(0, 8);
  for (size_t i = 0; i < 3; ++i) {
    wrs[i].wr_id = i;
    wrs[i].sg_list = &sge;
    wrs[i].num_sge = i == 1 ? 99 : 1;
    wrs[i].opcode = IBV_WR_RDMA_READ;
    wrs[i].send_flags = IBV_SEND_SIGNALED;
    wrs[i].wr.rdma.remote_addr = Address(*pair.server, 0);
    wrs[i].wr.rdma.rkey = pair.server->mr->rkey;
    wrs[i].next = i < 2 ? &wrs[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(pair.client->qp, wrs.data(), &bad), EINVAL);
  EXPECT_EQ(bad, &wrs[1]);
  EXPECT_EQ(pair.client->Wait().wr_id, 0u);
  EXPECT_TRUE(pair.client->Quiet(1));
}

TEST(DataPathTest, Atomics) {
  Pair pair;
  const uint64_t start = 100;
  std::memcpy(pair.server->data + 512, &start, 8);
  ibv_sge sge = pair.client->Sge(0, 8);
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.atomic.remote_addr = Address(*pair.server, 512);
  wr.wr.atomic.rkey = pair.server->mr->rkey;
  wr.wr.atomic.compare_add = 5;
  ASSERT_EQ(pair.client->Post(&wr), 0);
  EXPECT_EQ(pair.client->Wait().opcode, IBV_WC_FETCH_ADD);
  uint64_t value;
  std::memcpy(&value, pair.client->data, 8);
  EXPECT_EQ(value, 100u);
  wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  wr.wr.atomic.compare_add = 105;
  wr.wr.atomic.swap = 7;
  ASSERT_EQ(pair.client->Post(&wr), 0);
  EXPECT_EQ(pair.client->Wait().opcode, IBV_WC_COMP_SWAP);
  std::memcpy(&value, pair.client->data, 8);
  EXPECT_EQ(value, 105u);
  std::memcpy(&value, pair.server->data + 512, 8);
  EXPECT_EQ(value, 7u);
}

}  // namespace
}  // namespace verbena::conformance

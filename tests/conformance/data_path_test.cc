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

uint64_t Address(const Endpoint& end, size_t offset) {
  return reinterpret_cast<uint64_t>(end.data + offset);
}

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

}  // namespace
}  // namespace verbena::conformance

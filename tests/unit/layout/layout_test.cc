// The functions of common/layout: every field that is packed comes out again and disturbs no other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/layout/bucket.h"
#include "common/layout/directory.h"
#include "common/layout/item.h"
#include "common/layout/key_hash.h"
#include "common/layout/region_header.h"
#include "common/layout/size_class.h"
#include "common/layout/slot.h"
#include "common/layout/slot_match.h"

namespace verbena::layout {
namespace {

constexpr uint64_t kSeed = 0x1234567890abcdef;

// Values of a field of `bits` bits: the borders, each bit alone, and random ones.
std::vector<uint64_t> Samples(unsigned bits) {
  const uint64_t mask = bits == 64 ? UINT64_MAX : (uint64_t{1} << bits) - 1;
  std::vector<uint64_t> samples = {0, 1, mask - 1, mask};
  for (unsigned bit = 0; bit < bits; ++bit) samples.push_back(uint64_t{1} << bit);
  std::mt19937_64 random(bits);
  for (int i = 0; i < 20; ++i) samples.push_back(random() & mask);
  return samples;
}

TEST(SlotTest, RoundTrip) {
  for (const uint64_t fingerprint : Samples(kFingerprintBits)) {
    for (const uint64_t size_class : Samples(kSlotClassBits)) {
      for (const uint64_t unit : Samples(kSlotOffsetBits)) {
        const uint64_t offset = unit * kOffsetUnit;
        const Slot slot = Slot::Make(static_cast<uint32_t>(fingerprint),
                                     static_cast<uint32_t>(size_class), offset);
        ASSERT_EQ(slot.fingerprint(), fingerprint);
        ASSERT_EQ(slot.size_class(), size_class);
        ASSERT_EQ(slot.offset(), offset);
        ASSERT_EQ(slot.empty(), fingerprint == 0 && size_class == 0 && unit == 0);
      }
    }
  }
}

TEST(SlotTest, Bytes) { EXPECT_EQ(Slot::Make(0xabc, 0x12, 0x34560).bits, 0xabc1200000003456u); }

TEST(DirectoryEntryTest, RoundTrip) {
  for (unsigned depth = 0; depth <= kMaxDepth; ++depth) {
    for (const uint64_t unit : Samples(kSlotOffsetBits)) {
      const DirectoryEntry entry = DirectoryEntry::Make(unit * kOffsetUnit, depth);
      ASSERT_EQ(entry.depth(), depth);
      ASSERT_EQ(entry.segment_offset(), unit * kOffsetUnit);
    }
  }
  EXPECT_EQ(DirectoryEntry::Make(0x34560, 3).bits, 0x0c00000000003456u);
}

TEST(DirectoryEntryTest, OneEntryPer16KiBRoundedUp) {
  EXPECT_EQ(DirectoryDepthFor(0), 9u);
  EXPECT_EQ(DirectoryDepthFor(uint64_t{8} << 20), 9u);
  EXPECT_EQ(DirectoryDepthFor((uint64_t{8} << 20) + 1), 10u);
  EXPECT_EQ(DirectoryDepthFor(uint64_t{1} << 30), 16u);
  EXPECT_EQ(DirectoryDepthFor((uint64_t{1} << 30) + 1), 17u);
  EXPECT_EQ(DirectoryDepthFor(kMaxSliceSize), 34u);
  for (uint64_t size = uint64_t{1} << 23; size < kMaxSliceSize; size = size * 5 / 3) {
    const double share =
        static_cast<double>(uint64_t{8} << DirectoryDepthFor(size)) / static_cast<double>(size);
    EXPECT_GE(share, 0.00048) << size;
    EXPECT_LE(share, 0.00098) << size;
  }
}

TEST(BucketHeaderTest, RoundTrip) {
  for (unsigned depth = 0; depth <= kMaxDepth; ++depth) {
    for (const uint64_t prefix : Samples(kPrefixBits)) {
      for (const uint64_t link : Samples(BucketHeader::kLinkBits)) {
        const BucketHeader header = BucketHeader::Make(depth, prefix, static_cast<uint32_t>(link));
        ASSERT_EQ(header.depth(), depth);
        ASSERT_EQ(header.link(), link);
        // The upper `depth` bits of the prefix, the rest 0.
        const unsigned open = kPrefixBits - depth;
        ASSERT_EQ(header.prefix(), prefix >> open << open);
        const BucketHeader other = header.WithLink(0x5a5a);
        ASSERT_EQ(other.link(), 0x5a5au);
        ASSERT_EQ(other.WithLink(static_cast<uint32_t>(link)), header);
      }
    }
  }
}

TEST(BucketHeaderTest, CoversExactlyTheHashesWithItsPrefix) {
  std::mt19937_64 random(1);
  for (unsigned depth = 0; depth <= kMaxDepth; ++depth) {
    const KeyHash hash{random()};
    const BucketHeader header = BucketHeader::Make(depth, hash.prefix(), 7);
    EXPECT_TRUE(header.Covers(hash));
    for (unsigned bit = 0; bit < 64; ++bit) {
      const KeyHash other{hash.bits ^ (uint64_t{1} << (63 - bit))};
      EXPECT_EQ(header.Covers(other), bit >= depth) << "depth " << depth << " bit " << bit;
    }
  }
  for (unsigned depth = kMaxDepth + 1; depth < 64; ++depth) {
    EXPECT_FALSE((BucketHeader{uint64_t{depth} << 58}.Covers(KeyHash{0}))) << depth;
  }
}

TEST(BucketTest, PlacesInASegment) {
  std::set<uint64_t> offsets;
  for (uint32_t i = 0; i < kBuckets; ++i) offsets.insert(BucketOffset(i));
  for (uint32_t link = 1; link <= kOverflowBuckets; ++link) offsets.insert(OverflowOffset(link));
  EXPECT_EQ(offsets.size(), kBuckets + kOverflowBuckets);
  EXPECT_EQ(*offsets.begin(), 0u);
  EXPECT_EQ(*offsets.rbegin(), kSegmentSize - kBucketSize);
  for (const uint64_t offset : offsets) EXPECT_EQ(offset % kBucketSize, 0u);
  EXPECT_EQ(kSegmentSize, 36u * 1024);
  EXPECT_EQ(offsetof(Bucket, slots), 8u);
}

TEST(KeyHashTest, ThePartsAreBitsThatDoNotOverlap) {
  const KeyHash hash{0xfedcba9876543210};
  EXPECT_EQ(hash.bucket(), 0x10u);
  EXPECT_EQ(hash.fingerprint(), 0x432u);
  EXPECT_EQ(hash.prefix(), 0xfedcba9876543210u >> 22);
  EXPECT_EQ(hash.directory_index(0), 0u);
  EXPECT_EQ(hash.directory_index(8), 0xfeu);
  EXPECT_EQ(hash.directory_index(kMaxDepth), hash.prefix());
  EXPECT_EQ(kBucketBits + kFingerprintBits + kPrefixBits, 62u);
}

// The hash is part of the format: these numbers are XXH3's and may never change.
TEST(KeyHashTest, IsXxh3) {
  EXPECT_EQ(KeyHash::Of("", uint64_t{0}).bits, 0x2d06800538d394c2u);
  EXPECT_NE(KeyHash::Of("key", uint64_t{1}), KeyHash::Of("key", uint64_t{2}));
  EXPECT_NE(KeyHash::Of("key", uint64_t{1}), KeyHash::Of("kez", uint64_t{1}));
  EXPECT_EQ(KeyHash::Of("key", kSeed).bits, XXH3_64bits_withSeed("key", 3, kSeed));
}

TEST(RegionHeaderTest, Bytes) {
  RegionHeader header{};
  header.magic = kRegionMagic;
  EXPECT_EQ(std::memcmp(&header, "Verbena1", 8), 0);
  EXPECT_EQ(sizeof(RegionHeader), 72u);
  EXPECT_EQ(offsetof(RegionHeader, epoch), 16u);
  EXPECT_EQ(offsetof(RegionHeader, directory_offset), 40u);
  EXPECT_EQ(offsetof(RegionHeader, heap_end), 64u);
}

// Every size up to the largest: the class holds it, the class below does not, little is lost.
TEST(SizeClassTest, EachClassHoldsExactlyItsSizes) {
  uint32_t last = 0;
  for (uint64_t bytes = 1; bytes <= kMaxBlockSize; ++bytes) {
    const uint32_t size_class = SizeClassFor(bytes);
    ASSERT_LT(size_class, kSizeClasses);
    ASSERT_GE(BlockSize(size_class), bytes);
    if (size_class > 0) {
      ASSERT_LT(BlockSize(size_class - 1), bytes);
    }
    ASSERT_TRUE(size_class == last || size_class == last + 1) << "no class is left out";
    last = size_class;
    // 12.5 %, and up to 256 bytes at most one step.
    const uint64_t lost = BlockSize(size_class) - bytes;
    ASSERT_TRUE(lost < kFineStep || lost * 8 <= bytes) << bytes;
  }
  EXPECT_EQ(last, kSizeClasses - 1);
  EXPECT_EQ(SizeClassFor(kMaxBlockSize + 1), kRunClass);
  EXPECT_EQ(SizeClassFor(uint64_t{1} << 40), kRunClass);
}

TEST(SizeClassTest, BlocksAreAlignedAndGrow) {
  for (uint32_t size_class = 0; size_class < kSizeClasses; ++size_class) {
    EXPECT_EQ(BlockSize(size_class) % kOffsetUnit, 0u);
    EXPECT_EQ(FirstReadSize(size_class), BlockSize(size_class));
    if (size_class > 0) {
      EXPECT_GT(BlockSize(size_class), BlockSize(size_class - 1));
    }
  }
  EXPECT_EQ(FirstReadSize(kRunClass), 4096u);
  EXPECT_GE(kRunFirstRead, sizeof(ItemHeader) + kMaxKeySize);
}

TEST(SizeClassTest, ValidCodes) {
  for (uint32_t code = 0; code < 256; ++code) {
    EXPECT_EQ(IsValidClass(code), code < kSizeClasses || code == kRunClass) << code;
  }
}

class ItemTest : public testing::Test {
 protected:
  static constexpr uint64_t kOffset = 4711 * kOffsetUnit;

  void SetUp() override { Build("some key", "and its value, longer than the key"); }

  void Build(const std::string& key, const std::string& value) {
    key_ = key;
    ItemHeader header{.check = 0,
                      .version = 77,
                      .value_len = static_cast<uint32_t>(value.size()),
                      .key_len = static_cast<uint16_t>(key.size()),
                      .flags = 5};
    const std::string body = key + value;
    header.check = CombineChecks(HeaderCheck(header, kOffset, kSeed),
                                 BodyCheck(body.data(), body.size(), kSeed));
    block_.assign(sizeof(header) + body.size(), 0);
    std::memcpy(block_.data(), &header, sizeof(header));
    std::memcpy(block_.data() + sizeof(header), body.data(), body.size());
  }

  ItemState Judge() { return Judge(block_.size()); }
  ItemState Judge(uint64_t size) {
    // Exactly the bytes that are there, so that a sanitizer sees a step beyond.
    const std::vector<uint8_t> copy(block_.begin(), block_.begin() + static_cast<long>(size));
    return JudgeItem(copy.data(), size, kOffset, key_, kSeed, &item_size_);
  }

  std::string key_;
  std::vector<uint8_t> block_;
  uint64_t item_size_ = 0;
};

// The check is over the item's own key: that it is another one shows by its bytes alone.
TEST_F(ItemTest, AnItemIsTakenForItsOwnKeyOnly) {
  for (const size_t size : {1U, 2U, 7U, 8U, 9U, 15U, 16U, 17U, 24U, 31U, 32U, 33U, 64U, 65U}) {
    const std::string key(size, 'k');
    Build(key, "value");
    // Exactly the bytes that are there, so that a sanitizer sees a step beyond.
    const std::vector<uint8_t> block = block_;
    std::string_view value;
    uint64_t version = 0;
    const auto taken = [&](const std::string& other, const auto& seed) {
      const std::vector<char> exact(other.begin(), other.end());
      return TakeItemOf(block.data(), block.size(), kOffset, {exact.data(), exact.size()}, seed,
                        &value, &version);
    };
    ASSERT_TRUE(taken(key, kSeed)) << size;
    EXPECT_EQ(value, "value");
    EXPECT_EQ(version, 77U);
    EXPECT_TRUE(taken(key, SeededXxh3(kSeed))) << size;
    EXPECT_FALSE(taken(key + 'k', kSeed)) << size;
    for (size_t at = 0; at < size; ++at) {
      std::string other = key;
      other[at] = 'x';
      EXPECT_FALSE(taken(other, kSeed)) << size << " " << at;
      EXPECT_FALSE(taken(other, SeededXxh3(kSeed))) << size << " " << at;
    }
  }
}

TEST_F(ItemTest, AValidItemIsAccepted) {
  EXPECT_EQ(Judge(), ItemState::kAccepted);
  EXPECT_EQ(item_size_, block_.size());
  EXPECT_EQ(item_size_, ItemSize(key_.size(), 34));
  // What lies behind it in the block does not matter.
  block_.resize(block_.size() + 13, 0xee);
  EXPECT_EQ(Judge(), ItemState::kAccepted);
}

TEST_F(ItemTest, SmallestAndLargestKey) {
  Build("k", "");
  EXPECT_EQ(Judge(), ItemState::kAccepted);
  Build(std::string(kMaxKeySize, 'k'), "v");
  EXPECT_EQ(Judge(), ItemState::kAccepted);
}

TEST_F(ItemTest, NoChangedBitIsAccepted) {
  for (size_t byte = 0; byte < block_.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      block_[byte] = static_cast<uint8_t>(block_[byte] ^ (1u << bit));
      const ItemState state = Judge();
      block_[byte] = static_cast<uint8_t>(block_[byte] ^ (1u << bit));
      ASSERT_NE(state, ItemState::kAccepted) << "byte " << byte << " bit " << bit;
      const bool in_key = byte >= sizeof(ItemHeader) && byte < sizeof(ItemHeader) + key_.size();
      if (in_key) {
        ASSERT_EQ(state, ItemState::kOtherKey);
      }
      // Value, version, flags and check are no reason to take it for another key's.
      if (byte < 20 || (byte >= 22 && byte < sizeof(ItemHeader)) ||
          byte >= sizeof(ItemHeader) + key_.size()) {
        ASSERT_EQ(state, ItemState::kInvalid) << "byte " << byte << " bit " << bit;
      }
    }
  }
  EXPECT_EQ(Judge(), ItemState::kAccepted);
}

TEST_F(ItemTest, NoOldWordIsAccepted) {
  // As after an update in place of which one 8-byte word has not arrived.
  const std::vector<uint8_t> before = block_;
  Build(key_, "another value, but of the same size");
  block_.resize(before.size());
  Build(key_, std::string(34, 'n'));
  ASSERT_EQ(block_.size(), before.size());
  const std::vector<uint8_t> after = block_;
  for (size_t word = 0; word < before.size(); word += 8) {
    const size_t size = std::min<size_t>(8, before.size() - word);
    if (std::memcmp(before.data() + word, after.data() + word, size) == 0) continue;
    block_ = after;
    std::memcpy(block_.data() + word, before.data() + word, size);
    EXPECT_EQ(Judge(), ItemState::kInvalid) << word;
  }
}

TEST_F(ItemTest, NoPartIsAccepted) {
  for (size_t size = 0; size < block_.size(); ++size) {
    const ItemState state = Judge(size);
    EXPECT_NE(state, ItemState::kAccepted) << size;
    // As soon as the header is there it tells how much is missing.
    EXPECT_EQ(item_size_, size < sizeof(ItemHeader) ? 0 : block_.size()) << size;
    // With the whole key there, more may make it valid.
    if (size >= sizeof(ItemHeader) + key_.size()) {
      EXPECT_EQ(state, ItemState::kInvalid) << size;
    }
  }
}

TEST_F(ItemTest, ElsewhereItIsNotAccepted) {
  for (const uint64_t offset : {uint64_t{0}, kOffset - 16, kOffset + 16, kOffset << 20}) {
    EXPECT_EQ(JudgeItem(block_.data(), block_.size(), offset, key_, kSeed, &item_size_),
              ItemState::kInvalid);
  }
  EXPECT_EQ(JudgeItem(block_.data(), block_.size(), kOffset, key_, kSeed + 1, &item_size_),
            ItemState::kInvalid);
}

TEST_F(ItemTest, AnotherKeyIsToldApart) {
  for (const char* key : {"some kez", "some ke", "some key ", "x", "Some key"}) {
    EXPECT_EQ(JudgeItem(block_.data(), block_.size(), kOffset, key, kSeed, &item_size_),
              ItemState::kOtherKey)
        << key;
  }
}

TEST_F(ItemTest, KeyAndValueAreNotMixedUp) {
  // The same bytes, cut elsewhere.
  ItemHeader header;
  std::memcpy(&header, block_.data(), sizeof(header));
  header.key_len = static_cast<uint16_t>(header.key_len - 1);
  header.value_len += 1;
  std::memcpy(block_.data(), &header, sizeof(header));
  key_.pop_back();
  EXPECT_EQ(Judge(), ItemState::kInvalid);
}

TEST_F(ItemTest, LengthsBeyondTheLimitsAreInvalid) {
  ItemHeader header;
  std::memcpy(&header, block_.data(), sizeof(header));
  const auto judge = [&](uint16_t key_len, uint32_t value_len) {
    ItemHeader changed = header;
    changed.key_len = key_len;
    changed.value_len = value_len;
    std::memcpy(block_.data(), &changed, sizeof(changed));
    return Judge();
  };
  EXPECT_EQ(judge(0, 34), ItemState::kInvalid);
  EXPECT_EQ(item_size_, 0u);
  EXPECT_EQ(judge(kMaxKeySize + 1, 34), ItemState::kInvalid);
  EXPECT_EQ(item_size_, 0u);
  EXPECT_EQ(judge(8, kMaxValueSize + 1), ItemState::kInvalid);
  EXPECT_EQ(item_size_, 0u);
  EXPECT_EQ(judge(8, kMaxValueSize), ItemState::kInvalid);
  EXPECT_EQ(item_size_, ItemSize(8, kMaxValueSize));
}

TEST_F(ItemTest, AMoveOrANewVersionKeepsTheBodyCheck) {
  ItemHeader header;
  std::memcpy(&header, block_.data(), sizeof(header));
  const uint64_t body =
      BodyCheck(block_.data() + sizeof(header), block_.size() - sizeof(header), kSeed);
  header.version = 1000;
  header.check = CombineChecks(HeaderCheck(header, 32, kSeed), body);
  std::memcpy(block_.data(), &header, sizeof(header));
  EXPECT_EQ(JudgeItem(block_.data(), block_.size(), 32, key_, kSeed, &item_size_),
            ItemState::kAccepted);
}

TEST(MatchSlotsTest, AgreesWithTheDefinition) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20000; ++round) {
    Bucket bucket;
    bucket.header.bits = random();
    // Few different fingerprints, so that some match; some slots are empty.
    for (Slot& slot : bucket.slots) {
      slot = random() % 3 == 0
                 ? Slot{}
                 : Slot::Make(static_cast<uint32_t>(random() % 4) * 1365, 3, random() % 4096 * 16);
    }
    for (const uint32_t fingerprint : {0u, 1365u, 2730u, 4095u, 7u}) {
      uint32_t expected = 0;
      for (uint32_t i = 0; i < kSlotsPerBucket; ++i) {
        if (bucket.slots[i].fingerprint() == fingerprint) expected |= 1u << i;
      }
      ASSERT_EQ(MatchSlots(bucket, fingerprint), expected);
    }
  }
}

TEST(MatchSlotsTest, LooksAtTheWholeFingerprintAndNothingElse) {
  for (uint32_t i = 0; i < kSlotsPerBucket; ++i) {
    for (unsigned bit = 0; bit < kFingerprintBits; ++bit) {
      Bucket bucket;
      bucket.slots[i] = Slot::Make(0xabc, 255, (uint64_t{1} << 48) - 16);
      EXPECT_EQ(MatchSlots(bucket, 0xabc), 1u << i);
      EXPECT_EQ(MatchSlots(bucket, 0xabc ^ (1u << bit)), 0u);
    }
  }
}

TEST(CheckTest, IsNeverZero) {
  EXPECT_EQ(CombineChecks(5, 5), 1u);
  EXPECT_EQ(CombineChecks(0, 0), 1u);
  EXPECT_EQ(CombineChecks(5, 4), 1u);
  EXPECT_EQ(CombineChecks(6, 1), 7u);
}

}  // namespace
}  // namespace verbena::layout

#include "common/base/command_line.h"

#include <gflags/gflags.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

DEFINE_string(text_flag, "default", "");
DEFINE_bool(switch, false, "");
DEFINE_uint32(count, 1, "how many, 1 to 9");
DEFINE_double(ratio, 0.5, "");

namespace verbena {
namespace {

using Words = std::vector<std::string>;

class CommandLineTest : public ::testing::Test {
 protected:
  // The operands; flags stay set until the test ends.
  Words Parse(Words args) {
    auto operands = ParseCommandLine(std::move(args), "--some, --others");
    EXPECT_TRUE(operands.ok()) << operands.status();
    return operands.ok() ? *operands : Words{};
  }
  std::string Refusal(Words args) {
    const auto operands = ParseCommandLine(std::move(args), "--some, --others");
    EXPECT_TRUE(absl::IsInvalidArgument(operands.status())) << operands.status();
    return std::string(operands.status().message());
  }
  std::string File(const std::string& name, const std::string& text) {
    std::string path = ::testing::TempDir() + "/command_line_test_" + name;
    std::ofstream(path) << text;
    return path;
  }
  static bool Has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  gflags::FlagSaver saver_;
};

TEST_F(CommandLineTest, FlagsAndOperandsInAnyOrder) {
  EXPECT_EQ(Parse({"a", "--switch", "b", "-count=7", "--text_flag", "x=y", "c"}),
            (Words{"a", "b", "c"}));
  EXPECT_TRUE(FLAGS_switch);
  EXPECT_EQ(FLAGS_count, 7U);
  EXPECT_EQ(FLAGS_text_flag, "x=y");
}

TEST_F(CommandLineTest, OtherSpellings) {
  Parse({"--text-flag=", "--switch=yes", "--ratio=1e-3"});
  EXPECT_EQ(FLAGS_text_flag, "");
  EXPECT_TRUE(FLAGS_switch);
  EXPECT_EQ(FLAGS_ratio, 1e-3);
  Parse({"--noswitch"});
  EXPECT_FALSE(FLAGS_switch);
  Parse({"--count=1", "--count=2"});
  EXPECT_EQ(FLAGS_count, 2U);
}

TEST_F(CommandLineTest, DoubleDashAndSingleDash) {
  EXPECT_EQ(Parse({"put", "--", "--count=9", "--", "-"}), (Words{"put", "--count=9", "--", "-"}));
  EXPECT_EQ(Parse({"-", ""}), (Words{"-", ""}));
  EXPECT_EQ(FLAGS_count, 1U);
}

TEST_F(CommandLineTest, MistakesNameTheFlag) {
  EXPECT_TRUE(Has(Refusal({"--colour=red"}), "unknown flag --colour; there are --some, --others"));
  EXPECT_TRUE(Has(Refusal({"-5"}), "unknown flag -5"));
  EXPECT_TRUE(Has(Refusal({"--nocount"}), "unknown flag --nocount"));
  EXPECT_TRUE(Has(Refusal({"--count"}), "--count needs a value"));
  EXPECT_TRUE(Has(Refusal({"--count=many"}), "--count=many"));
  EXPECT_TRUE(Has(Refusal({"--count=many"}), "1 to 9"));
  EXPECT_TRUE(Has(Refusal({"--count=-1"}), "not negative"));
  EXPECT_TRUE(Has(Refusal({"--switch=maybe"}), "--switch=maybe is not allowed: it must be true"));
  EXPECT_TRUE(Has(Refusal({"--ratio=half"}), "a number"));
}

TEST_F(CommandLineTest, FlagFiles) {
  const std::string inner = File("inner", "--count=5\n");
  const std::string outer = File(
      "outer", "# a comment\n\n  --text_flag=from file  \n--switch\n--flagfile=" + inner + "\n");
  EXPECT_EQ(Parse({"go", "--flagfile=" + outer}), (Words{"go"}));
  EXPECT_EQ(FLAGS_text_flag, "from file");
  EXPECT_TRUE(FLAGS_switch);
  EXPECT_EQ(FLAGS_count, 5U);
  // Later ones win, whether in a file or not.
  Parse({"--flagfile", inner, "--count=6"});
  EXPECT_EQ(FLAGS_count, 6U);
  Parse({"--count=6", "--flagfile=" + outer + "," + inner});
  EXPECT_EQ(FLAGS_count, 5U);
}

TEST_F(CommandLineTest, MistakesInFlagFilesNameFileAndLine) {
  const std::string unknown = File("unknown", "--count=2\n--colour=red\n");
  const std::string text = Refusal({"--flagfile=" + unknown});
  EXPECT_TRUE(Has(text, unknown + ", line 2: unknown flag --colour")) << text;
  EXPECT_EQ(FLAGS_count, 1U);  // nothing was set
  EXPECT_TRUE(Has(Refusal({"--flagfile=" + File("word", "count=2\n")}), "'count=2' is no flag"));
  EXPECT_TRUE(Has(Refusal({"--flagfile=" + File("bare", "--count\n7\n")}), "needs a value"));
  EXPECT_TRUE(Has(Refusal({"--flagfile=/no/such/file"}), "/no/such/file cannot be read"));
  const std::string loop = ::testing::TempDir() + "/command_line_test_loop";
  std::ofstream(loop) << "--flagfile=" << loop << "\n";
  EXPECT_TRUE(Has(Refusal({"--flagfile=" + loop}), "name each other"));
}

}  // namespace
}  // namespace verbena

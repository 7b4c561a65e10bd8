#include "bench/workload/properties.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace verbena::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ValueOf(const Properties& properties, const std::string& name) {
  const Properties::Entry* const entry = properties.Find(name);
  return entry == nullptr ? "(none)" : entry->value;
}

TEST(Properties, ReadsJavasForm) {
  Properties properties;
  ASSERT_TRUE(properties
                  .AddText("# comment \\\n"
                           "  ! another = one\n"
                           "\n"
                           "a=1\r\n"
                           "  b : 2  \r"
                           "c 3\n"
                           "d\t=\t4\n"
                           "long = begin,\\\n"
                           "       end\n"
                           "e=\n"
                           "f\n"
                           "with\\ blank\\=sign = x\\ty\n"
                           "code=\\u0041\\u00e9\\u20ac\n"
                           "slash=a\\\\\n"
                           "twice=1\n"
                           "twice=2\n"
                           "equals=a=b:c\n"
                           "last=end\\",
                           "text")
                  .ok());
  EXPECT_EQ(ValueOf(properties, "a"), "1");
  EXPECT_EQ(ValueOf(properties, "b"), "2");
  EXPECT_EQ(ValueOf(properties, "c"), "3");
  EXPECT_EQ(ValueOf(properties, "d"), "4");
  EXPECT_EQ(ValueOf(properties, "long"), "begin,end");
  EXPECT_EQ(ValueOf(properties, "e"), "");
  EXPECT_EQ(ValueOf(properties, "f"), "");
  EXPECT_EQ(ValueOf(properties, "with blank=sign"), "x\ty");
  EXPECT_EQ(ValueOf(properties, "code"), "A\xc3\xa9\xe2\x82\xac");
  EXPECT_EQ(ValueOf(properties, "slash"), "a\\");
  EXPECT_EQ(ValueOf(properties, "twice"), "2");
  EXPECT_EQ(ValueOf(properties, "equals"), "a=b:c");
  EXPECT_EQ(ValueOf(properties, "last"), "end");
  EXPECT_EQ(properties.entries().size(), 13u);
  EXPECT_EQ(properties.Find("long")->from, "text: line 8");
}

TEST(Properties, BadTextsAreNamedByLine) {
  for (const char* text : {"a=1\nb=\\u12", "a=1\nb=\\u12gx"}) {
    Properties properties;
    const absl::Status status = properties.AddText(text, "file");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.ToString(), HasSubstr("file: line 2"));
    EXPECT_THAT(status.ToString(), HasSubstr("hexadecimal"));
  }
  Properties properties;
  EXPECT_THAT(properties.AddText("=value", "file").ToString(), HasSubstr("no name"));
}

TEST(TakeProperties, AssignmentsWinOverFilesAndTheRestIsLeft) {
  const std::string path = ::testing::TempDir() + "/verbena_properties_" + std::to_string(getpid());
  std::ofstream(path) << "recordcount=5\nthreadcount=3\n";
  std::vector<std::string> args = {"run", "-p", "recordcount=7", "--depth=2", "-P", path,
                                   "--",  "-p"};
  const auto properties = TakeProperties(&args);
  std::remove(path.c_str());
  ASSERT_TRUE(properties.ok()) << properties.status();
  EXPECT_THAT(args, ElementsAre("run", "--depth=2", "--", "-p"));
  EXPECT_EQ(ValueOf(*properties, "recordcount"), "7");
  EXPECT_EQ(ValueOf(*properties, "threadcount"), "3");
  EXPECT_FALSE(properties->empty());
  std::vector<std::string> none = {"run"};
  EXPECT_TRUE(TakeProperties(&none)->empty());
}

TEST(TakeProperties, MistakesAreNamed) {
  const auto error = [](std::vector<std::string> args) {
    const auto properties = TakeProperties(&args);
    EXPECT_FALSE(properties.ok());
    return properties.status().ToString();
  };
  EXPECT_THAT(error({"-P"}), HasSubstr("followed by a file"));
  EXPECT_THAT(error({"-p"}), HasSubstr("followed by name=value"));
  EXPECT_THAT(error({"-p", "recordcount"}), HasSubstr("must be name=value"));
  EXPECT_THAT(error({"-p", "=5"}), HasSubstr("must be name=value"));
  EXPECT_THAT(error({"-P", "/nowhere/at/all"}), HasSubstr("/nowhere/at/all"));
  EXPECT_THAT(error({"-P", "/"}), HasSubstr("cannot be read"));
}

TEST(NearestName, CountsEdits) {
  const std::vector<std::string_view> known = {"readproportion", "recordcount", "target"};
  EXPECT_EQ(NearestName("recordcuont", known), "recordcount");
  EXPECT_EQ(NearestName("readPropotion", known), "readproportion");
  EXPECT_EQ(NearestName("taget", known), "target");
}

}  // namespace
}  // namespace verbena::bench

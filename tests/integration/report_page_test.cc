// The page of verbena-bench --report as a browser draws it: the lines are there in their colours,
// and nothing is cut off, on a telephone and on a desk. Needs Chromium, and netpbm to look at
// pictures; exit status 77 says that they are not there.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "bench/compare/compare_report.h"
#include "bench/systems/child_process.h"
#include "tests/integration/process.h"
#include "tests/unit/bench/compare/comparison_testing.h"

namespace verbena::bench {
namespace {

struct Color {
  int red = 0;
  int green = 0;
  int blue = 0;
};

Color ParseColor(const std::string& text) {
  const auto part = [&text](size_t at) { return std::stoi(text.substr(at, 2), nullptr, 16); };
  return {part(1), part(3), part(5)};
}

// A picture as pngtopnm writes it.
class Picture {
 public:
  explicit Picture(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string kind;
    int most = 0;
    file >> kind >> width_ >> height_ >> most;
    file.get();
    bytes_.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (kind != "P6" || most != 255 ||
        bytes_.size() != static_cast<size_t>(width_) * static_cast<size_t>(height_) * 3) {
      width_ = height_ = 0;
    }
  }
  int width() const { return width_; }
  int height() const { return height_; }

  // Whether a pixel is of a colour, but for the smoothing of edges.
  bool Is(int x, int y, const Color& color) const {
    const size_t at =
        (static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x)) * 3;
    const std::array<int, 3> wanted = {color.red, color.green, color.blue};
    for (size_t i = 0; i < 3; ++i) {
      if (std::abs(static_cast<unsigned char>(bytes_[at + i]) - wanted[i]) > 12) return false;
    }
    return true;
  }
  // Pixels of a colour in columns from `from` to `to`.
  int Count(const Color& color, int from, int to) const {
    int count = 0;
    for (int y = 0; y < height_; ++y) {
      for (int x = from; x < to; ++x) count += Is(x, y, color) ? 1 : 0;
    }
    return count;
  }

 private:
  int width_ = 0;
  int height_ = 0;
  std::string bytes_;
};

class ReportPageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/report_page_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string File(const std::string& name) const { return folder_ + "/" + name; }

  // The output of Chromium, started with what it needs as root and without a screen.
  std::string Browse(const std::string& page, int width, int height,
                     const std::vector<std::string>& more) const {
    verbena::testing::ProcessOptions options;
    options.program = FindProgram("chromium");
    options.args = {"--headless",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--disable-dev-shm-usage",
                    "--hide-scrollbars",
                    "--user-data-dir=" + File("profile"),
                    "--window-size=" + std::to_string(width) + "," + std::to_string(height)};
    options.args.insert(options.args.end(), more.begin(), more.end());
    options.args.push_back("file://" + page);
    const auto process = verbena::testing::Process::Run(std::move(options));
    EXPECT_TRUE(process.ok()) << process.status();
    return process.ok() ? (*process)->out() : "";
  }

  Picture Draw(const std::string& page, int width, int height) const {
    Browse(page, width, height, {"--screenshot=" + File("shot.png")});
    verbena::testing::ProcessOptions options;
    options.program = "/bin/sh";
    options.args = {"-c", "pngtopnm \"$1\" >\"$2\"", "sh", File("shot.png"), File("shot.ppm")};
    const auto process = verbena::testing::Process::Run(std::move(options));
    EXPECT_TRUE(process.ok()) << process.status();
    return Picture(File("shot.ppm"));
  }

  std::string folder_;
};

// Within `width` pixels: every system has its bar and its lines, the margin on the right is white,
// and so is the page.
void ExpectWhole(const Picture& picture, int width) {
  ASSERT_EQ(picture.width(), width);
  ASSERT_GT(picture.height(), 0);
  for (size_t i = 0; i < ComparedSystems().size(); ++i) {
    EXPECT_GT(picture.Count(ParseColor(SeriesColor(i)), 0, width), 200) << ComparedSystems()[i];
  }
  constexpr int kMargin = 8;
  EXPECT_EQ(picture.Count({255, 255, 255}, width - kMargin, width), kMargin * picture.height())
      << "something reaches over the right edge";
  EXPECT_GT(picture.Count({255, 255, 255}, 0, width), width * picture.height() / 2);
}

TEST_F(ReportPageTest, ComparisonIsDrawnOnAPhoneAndOnADesk) {
  const std::string page = File("compare.html");
  ASSERT_TRUE(WriteReport(page, CompareReport(ComparedConfig(), SomeComparison())).ok());
  ExpectWhole(Draw(page, 360, 6000), 360);
  ExpectWhole(Draw(page, 1280, 3000), 1280);
}

TEST_F(ReportPageTest, LinesRunFromEdgeToEdgeOfTheirPlot) {
  Report report;
  report.title = "one line";
  ReportSection section;
  section.heading = "chart";
  section.lines = {{"rising", "x", "y", Axis::kLinear, Axis::kLinear, {{"a", {{0, 0}, {10, 10}}}}}};
  report.sections = {section};
  const std::string page = File("line.html");
  ASSERT_TRUE(WriteReport(page, report).ok());
  const Picture picture = Draw(page, 360, 700);
  ASSERT_EQ(picture.width(), 360);
  const Color color = ParseColor(SeriesColor(0));
  int left = picture.width();
  int right = 0;
  int at_left = 0;
  int at_right = 0;
  for (int y = 0; y < picture.height(); ++y) {
    for (int x = 0; x < picture.width(); ++x) {
      if (!picture.Is(x, y, color)) continue;
      if (x < left) left = x, at_left = y;
      if (x > right) right = x, at_right = y;
    }
  }
  // The plot takes most of the width, and the line rises over it.
  EXPECT_LT(left, 90);
  EXPECT_GT(right, 300);
  EXPECT_GT(at_left, at_right + 50);
}

TEST_F(ReportPageTest, NothingIsLostInTheDocument) {
  ComparisonResult result = SomeComparison();
  result.lanes[4].sum.lost = "<script>document.title='changed'</script>";
  const std::string page = File("dom.html");
  ASSERT_TRUE(WriteReport(page, CompareReport(ComparedConfig(), result)).ok());
  const std::string dom = Browse(page, 360, 800, {"--dump-dom"});
  EXPECT_NE(dom.find("<title>Verbena and others"), std::string::npos) << dom.substr(0, 300);
  EXPECT_NE(dom.find("ended early: &lt;script&gt;"), std::string::npos);
  EXPECT_NE(dom.find("</html>"), std::string::npos);
}

}  // namespace
}  // namespace verbena::bench

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (const char* program : {"chromium", "pngtopnm"}) {
    if (verbena::bench::FindProgram(program).empty()) {
      std::printf("report_page_test: skipped: no %s here: apt-get install chromium netpbm\n",
                  program);
      return 77;
    }
  }
  return RUN_ALL_TESTS();
}

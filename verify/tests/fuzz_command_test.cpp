// SPDX-License-Identifier: Apache-2.0
// fljsd fuzz as its users meet it, and external candidates that fail in every way that a process can.
#include <gtest/gtest.h>

#include <chrono>
#include <sstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "verify/candidates/external.h"
#include "verify/fuzz/campaign.h"
#include "verify/fuzz/corpus.h"
#include "verify/tests/subprocess.h"

namespace fljsd {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using test::file_text;
using test::Finished;
using test::Process;
using test::TemporaryFolder;

Finished run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {FLJSD_PROGRAM, "fuzz"});
  return Process(std::move(arguments)).wait();
}

void expect_refusal(const Finished& finished, const std::string& part) {
  EXPECT_EQ(finished.status, 2) << finished.out;
  EXPECT_EQ(finished.out, "");
  EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
  EXPECT_NE(finished.err.find(part), std::string::npos) << finished.err;
}

// A program in the shell that answers cases by `fljsd loss`, or does what `body` says, with $case and $result
// set.
std::string program(const std::string& body,
                    const std::string& hello = R"({"class": "float64", "deterministic": true})") {
  const auto extract = [&](const std::string& key) {
    return R"__($(printf %s "$line" | sed 's/.*")__" + key + R"__(":"\([^"]*\)".*/\1/'))__";
  };
  return "read line; echo '" + hello + "'; while read line; do case=" + extract("case") +
         "; result=" + extract("result") + "; " + body + "; done";
}
const std::string answer =
    std::string(FLJSD_PROGRAM) + R"( loss $case --grad --out $result >/dev/null; echo '{"ok": true}')";

// Long enough for a busy machine. Only what is meant to run into a limit gets a short one.
constexpr milliseconds patience(60000);

CampaignReport judged(const std::string& body, Cases cases = 4, milliseconds limit = patience) {
  ExternalCandidate candidate(program(body), {patience, limit, patience});
  CampaignOptions options;
  options.cases = cases;
  options.shrink.cases = 3;
  return run_campaign(candidate, options);
}

// Fault: a way to fail that ends the campaign, hangs it, or is not reported with its case.
TEST(ExternalCampaign, EveryWayToFailIsAFinding) {
  const std::pair<std::string, std::string> ways[] = {
      {"kill -SEGV $$", "crash"},
      {"sleep 30", "time-out"},
      {"echo done", "garbage on stdout"},
      {R"(echo '{"ok": true}')", "bad result"},
      {R"(echo text >$result; echo '{"ok": true}')", "bad result"},
      {R"(echo '{"error": "no memory"}')", "error"},
  };
  for (const auto& [body, manner] : ways) {
    SCOPED_TRACE(body);
    const CampaignReport report = judged(body, 4, manner == "time-out" ? milliseconds(700) : patience);
    ASSERT_EQ(report.findings.size(), 1u);
    EXPECT_EQ(report.findings[0].kind, (FindingKind{"answers", "", manner}));
    EXPECT_GE(report.cases - report.shrink_cases, 4);
  }
}

TEST(ExternalCampaign, AChangedCaseFileIsAFinding) {
  const CampaignReport report = judged("printf x >>$case; " + answer);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].kind, (FindingKind{"inputs-unchanged", "", "input modified"}));
}

// Fault: a process that does not end is left behind, or its hang is no finding.
TEST(ExternalCampaign, AHangAtExitIsAFinding) {
  ExternalCandidate candidate(program(answer) + "; sleep 30", {patience, patience, milliseconds(300)});
  CampaignOptions options;
  options.cases = 2;
  const CampaignReport report = run_campaign(candidate, options);
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].kind, (FindingKind{"answers", "", "hang at exit"}));
}

// Fault: a process that answers rightly is convicted; what it does not support is a failure, or not counted.
TEST(ExternalCampaign, ARightProcessIsCleanAndMaySayWhatItDoesNotSupport) {
  const CampaignReport report = judged(answer, 15);
  for (const Finding& finding : report.findings) ADD_FAILURE() << finding.text << to_text(finding.recipe);
  const CampaignReport none = judged(R"(echo '{"error": "unsupported: everything"}')", 5);
  EXPECT_TRUE(none.clean());
  EXPECT_EQ(none.coverage.family_property.size(), 0u);
  EXPECT_FALSE(none.coverage.skipped.empty());
}

// Fault: bad usage that starts a campaign, or is refused in more than a sentence.
TEST(FuzzCommand, RefusesBadUsage) {
  TemporaryFolder folder;
  expect_refusal(run({}), "--candidate");
  expect_refusal(run({"--candidate", "ligger"}), "liger");
  expect_refusal(run({"--candidate", "exec:"}), "command");
  expect_refusal(run({"--candidate", "exec:no-such-program-here", "--cases", "1"}), "no-such-program-here");
  expect_refusal(run({"--candidate", "reference", "--property", "accurracy"}), "did you mean 'accuracy'?");
  expect_refusal(run({"--candidate", "reference", "--family", "picked"}), "did you mean 'peaked'?");
  expect_refusal(run({"--candidate", "reference", "--cases", "0"}), "at least 1");
  expect_refusal(run({"--candidate", "reference", "--recipe", "tokens=x"}), "tokens");
  expect_refusal(run({"--candidate", "reference", "--replay", folder / "none.recipe"}), "none.recipe");
  std::ofstream(folder / "binary.recipe") << std::string("\1\0x\n", 4);
  expect_refusal(run({"--candidate", "reference", "--replay", folder / "binary.recipe"}),
                 "none of recipe, property");
  for (const char* option : {"--seconds", "--cases", "--seed", "--corpus", "--max-vocab"})
    expect_refusal(run({"--candidate", "reference", "--recipe", "tokens=1", option, "3"}), option);
  expect_refusal(run({"--candidate", "reference", "--json", folder / "no/such/folder.json"}), "folder.json");
  std::ofstream(folder / "file") << "x";
  expect_refusal(run({"--candidate", "reference", "--cases", "1", "--corpus", folder / "file"}), "file");
}

// Fault: a conviction without the means to look at it.
TEST(FuzzCommand, AConvictionPrintsOneLineThatReproducesIt) {
  TemporaryFolder folder;
  const Finished found = run({"--candidate", "torch-eager-bf16", "--cases", "200", "--first", "--corpus",
                              folder / "corpus", "--json", folder / "report.json"});
  EXPECT_EQ(found.status, 1) << found.err;
  EXPECT_NE(found.out.find("Convicted"), std::string::npos) << found.out;
  const json report = json::parse(file_text(folder / "report.json"));
  EXPECT_EQ(report.at("verdict"), "convicted");
  ASSERT_EQ(report.at("findings").size(), 1u);
  const json& finding = report.at("findings")[0];
  const std::string command = finding.at("reproduce");
  EXPECT_NE(found.out.find(command), std::string::npos) << found.out;
  // The line itself, in a shell.
  const std::string typed = std::string(FLJSD_PROGRAM) + command.substr(std::string("fljsd").size());
  const Finished again = Process({"/bin/sh", "-c", typed}).wait();
  EXPECT_EQ(again.status, 1) << again.out << again.err;
  EXPECT_NE(again.out.find(finding.at("property").get<std::string>()), std::string::npos) << again.out;
  // The file.
  const Finished replayed = run({"--candidate", "torch-eager-bf16", "--replay", finding.at("file")});
  EXPECT_EQ(replayed.status, 1) << replayed.err;
  EXPECT_EQ(run({"--candidate", "reference", "--replay", finding.at("file")}).status, 0);
}

// Fault: a line that is said to show a failure again, but cannot, because the failure depends on what ran
// before.
TEST(FuzzCommand, AConvictionByHistoryPrintsTheSearchThatMeetsIt) {
  TemporaryFolder folder;
  const auto finding = [&](const std::string& name) {
    return json::parse(file_text(folder / name)).at("findings").at(0);
  };
  const Finished found = run({"--candidate", "zoo:race-now-and-then", "--seed", "2", "--cases", "400",
                              "--first", "--max-vocab", "40", "--json", folder / "report.json"});
  EXPECT_EQ(found.status, 1) << found.out << found.err;
  const std::string command = finding("report.json").at("reproduce");
  EXPECT_EQ(command.find("--recipe"), std::string::npos) << command;
  const std::string typed = std::string(FLJSD_PROGRAM) + command.substr(std::string("fljsd").size()) +
                            " --json " + (folder / "again.json");
  const Finished again = Process({"/bin/sh", "-c", typed}).wait();
  EXPECT_EQ(again.status, 1) << again.out << again.err;
  EXPECT_EQ(finding("again.json").at("recipe"), finding("report.json").at("recipe"));
}

// Fault: a clean bill that does not say what it covers.
TEST(FuzzCommand, ACleanBillSaysWhatWasCovered) {
  const Finished finished = run({"--candidate", "float64", "--cases", "300"});
  EXPECT_EQ(finished.status, 0) << finished.out;
  for (const char* part :
       {"Clean", "16 of 16 families", "Covered", "permuted-vocabulary", "near-identical", "evaluations on"})
    EXPECT_NE(finished.out.find(part), std::string::npos) << part << finished.out;
  std::istringstream lines(finished.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 90u) << line;
  EXPECT_EQ(finished.err, "");
}

TEST(FuzzCommand, JsonOnStandardOutputIsJsonAlone) {
  const Finished finished = run({"--candidate", "reference", "--cases", "40", "--json", "-"});
  EXPECT_EQ(finished.status, 0);
  const json report = json::parse(finished.out);
  EXPECT_EQ(report.at("schema"), 1);
  EXPECT_GE(report.at("cases").get<int>(), 40);
  EXPECT_TRUE(report.at("coverage").at("family_property").is_object());
  const json list = json::parse(run({"--list", "--json", "-"}).out);
  EXPECT_GE(list.at("checks").size(), 20u);
}

// Fault: Ctrl-C that loses the report; a kill that loses what was done.
TEST(FuzzCommand, EndsCleanlyWhenInterruptedAndGoesOnAfterAKill) {
  TemporaryFolder folder;
  const std::vector<std::string> arguments = {FLJSD_PROGRAM, "fuzz", "--candidate", "reference",
                                              "--seconds",   "600",  "--corpus",    folder / "corpus"};
  // Waits until the campaign's state is written, after `since`.
  const auto saved = [&](std::filesystem::file_time_type since) {
    for (int i = 0; i < 600; ++i) {
      if (std::filesystem::is_directory(folder / "corpus"))
        for (const auto& entry : std::filesystem::directory_iterator(folder / "corpus"))
          if (entry.path().extension() == ".json" && entry.last_write_time() > since) return true;
      std::this_thread::sleep_for(milliseconds(100));
    }
    return false;
  };
  {
    Process process(arguments);
    ASSERT_TRUE(saved(std::filesystem::file_time_type::min()));
    process.signal(SIGKILL);
    EXPECT_EQ(process.wait().status, -SIGKILL);
  }
  const auto killed = std::filesystem::file_time_type::clock::now();
  Process process(arguments);
  ASSERT_TRUE(saved(killed));  // so it runs, and has seen to its signals
  process.signal(SIGINT);
  const Finished finished = process.wait();
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_NE(finished.out.find("Goes on after"), std::string::npos) << finished.out;
  EXPECT_NE(finished.out.find("Interrupted"), std::string::npos) << finished.out;
  EXPECT_NE(finished.out.find("Clean"), std::string::npos) << finished.out;
}

}  // namespace
}  // namespace fljsd

// SPDX-License-Identifier: Apache-2.0
// External candidates that behave and misbehave, as small shell programs. Each test names the way in which a
// process can let an engine hang, crash, or believe a result that was never computed.
#include "verify/candidates/external.h"

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "verify/candidates/line_process.h"
#include "verify/cases/layout.h"
#include "verify/cases/result.h"

namespace fljsd {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

Case tiny_case() {
  Case c;
  c.student_input = make_tensor(DType::bf16, {2, 1}, {1, 2});
  c.student_weight = make_tensor(DType::bf16, {3, 1}, {1, 2, 3});
  c.teacher_input = c.student_input;
  c.teacher_weight = c.student_weight;
  return c;
}

class ExternalCandidateTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("fljsd-external-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    CaseResult right;
    right.loss = 0.25;
    right.token_loss = make_tensor(DType::f32, {2}, {0.25, 0.25});
    right.student_input_grad = make_tensor(DType::bf16, {2, 1}, {0.5, 1});
    right.student_weight_grad = make_tensor(DType::bf16, {3, 1}, {1, 2, 3});
    write_result(folder_ / "right", right);
    CaseResult no_gradient = right;
    no_gradient.student_weight_grad.reset();
    write_result(folder_ / "no-gradient", no_gradient);
    CaseResult wrong_shape = right;
    wrong_shape.token_loss = make_tensor(DType::f32, {3}, {1, 2, 3});
    write_result(folder_ / "wrong-shape", wrong_shape);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A program that introduces itself with `hello` and then runs `body` for each case, with $case and $result
  // set.
  ExternalCandidate program(const std::string& body, const std::string& hello = R"({"ok": true})") const {
    const auto extract = [&](const std::string& key) {
      return R"__($(printf %s "$line" | sed 's/.*")__" + key + R"__(":"\([^"]*\)".*/\1/'))__";
    };
    const std::string script = "read line; echo '" + hello +
                               "'; while read line; do case=" + extract("case") +
                               "; result=" + extract("result") + "; " + body + "; done";
    return ExternalCandidate(script, {milliseconds(5000), milliseconds(1500), milliseconds(500)});
  }
  std::string copy(const std::string& file) const { return "cp " + (folder_ / file).string() + " $result"; }
  std::string answer(const std::string& file) const { return copy(file) + R"(; echo '{"ok": true}')"; }

  static Failure::Kind kind(const Outcome& outcome) {
    const auto* failure = std::get_if<Failure>(&outcome);
    if (!failure) throw std::runtime_error("the outcome is not a failure");
    return failure->kind;
  }

  fs::path folder_;
};

TEST_F(ExternalCandidateTest, ReturnsWhatTheProcessWrote) {
  ExternalCandidate candidate = program(answer("right"));
  for (int i = 0; i < 3; ++i) {
    const Outcome outcome = candidate.compute(tiny_case(), {});
    const auto* a = std::get_if<Answer>(&outcome);
    ASSERT_NE(a, nullptr);
    EXPECT_EQ(a->result.loss, 0.25);
    EXPECT_EQ(a->result.token_loss, (std::vector<double>{0.25, 0.25}));
    EXPECT_EQ(a->result.student_weight_grad(2, 0), 3);
  }
  EXPECT_FALSE(candidate.reset());
}

TEST_F(ExternalCandidateTest, ReadsItsDeclaration) {
  ExternalCandidate candidate =
      program(":", R"({"class": "bf16-logits", "deterministic": true, "lacks": ["grad", "f64"]})");
  const Declaration d = candidate.declaration();
  EXPECT_EQ(d.accuracy_class, AccuracyClass::bf16_logits);
  EXPECT_TRUE(d.deterministic);
  EXPECT_EQ(d.lacks, (FeatureSet{Feature::grad, Feature::f64}));
}

// Catches: a process that is sent padded rows without having said that it takes them, or never though it has.
TEST_F(ExternalCandidateTest, OnlyAStridedProcessIsToldHowTensorsLie) {
  const Case c = tiny_case();
  const LaidOutCase laid_out(c, {3, 34});
  const std::string body =
      R"(if grep -q '"row_padding":"3"' $case && grep -q '"misalignment":"34"' $case; then )" +
      answer("right") + R"(; else echo '{"error": "packed"}'; fi)";
  ExternalCandidate strided = program(body, R"({"strided": true})");
  EXPECT_EQ(strided.declaration().lacks, FeatureSet{});
  EXPECT_TRUE(strided.takes_views());
  EXPECT_TRUE(std::holds_alternative<Answer>(strided.compute_views(laid_out.problem(), c.options, {})));
  EXPECT_EQ(kind(strided.compute(c, {})), Failure::Kind::error);
  ExternalCandidate plain = program(body);
  plain.declaration();
  EXPECT_FALSE(plain.takes_views());
}

// Catches: a misspelt declaration that silently makes the candidate responsible for everything, or for
// nothing.
TEST_F(ExternalCandidateTest, RefusesADeclarationThatItDoesNotUnderstand) {
  for (const char* hello : {R"({"lacks": ["gradient"]})", R"({"class": "fp16"})", R"({"lack": ["grad"]})",
                            "hello", R"({"deterministic": 1})", R"({"strided": "yes"})"}) {
    ExternalCandidate candidate = program(":", hello);
    EXPECT_THROW(candidate.declaration(), std::runtime_error) << hello;
  }
}

TEST_F(ExternalCandidateTest, ACommandThatCannotStartIsRefusedWithItsStderr) {
  ExternalCandidate candidate("no-such-program-here",
                              {milliseconds(5000), milliseconds(500), milliseconds(500)});
  try {
    candidate.declaration();
    FAIL() << "it was accepted";
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string(e.what()).find("no-such-program-here"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("exited with status 127"), std::string::npos) << e.what();
  }
}

TEST_F(ExternalCandidateTest, ACrashIsAFindingAndTheNextCaseGetsANewProcess) {
  ExternalCandidate candidate = program("echo about to fall >&2; kill -SEGV $$");
  for (int i = 0; i < 2; ++i) {
    const Outcome outcome = candidate.compute(tiny_case(), {});
    ASSERT_EQ(kind(outcome), Failure::Kind::crash);
    const Failure& failure = std::get<Failure>(outcome);
    EXPECT_NE(failure.text.find("signal 11"), std::string::npos) << failure.text;
    EXPECT_EQ(failure.diagnostics, "about to fall\n");
  }
}

TEST_F(ExternalCandidateTest, SilenceIsATimeOut) {
  ExternalCandidate candidate = program("sleep 30");
  EXPECT_EQ(kind(candidate.compute(tiny_case(), {})), Failure::Kind::time_out);
}

TEST_F(ExternalCandidateTest, AnythingElseOnStdoutIsGarbage) {
  for (const char* line :
       {"done", "42", "{}", R"({"ok": false})", R"({"ok": true, "error": "both"})", "null", ""}) {
    ExternalCandidate candidate = program("echo '" + std::string(line) + "'");
    EXPECT_EQ(kind(candidate.compute(tiny_case(), {})), Failure::Kind::garbage) << line;
  }
}

// Catches: an answer printed in advance being taken for the answer to the next case.
TEST_F(ExternalCandidateTest, AnAnswerNobodyAskedForIsGarbage) {
  ExternalCandidate candidate = program(copy("right") + R"(; printf '{"ok": true}\n{"ok": true}\n')");
  EXPECT_TRUE(std::holds_alternative<Answer>(candidate.compute(tiny_case(), {})));
  EXPECT_EQ(kind(candidate.compute(tiny_case(), {})), Failure::Kind::garbage);
}

// Catches: "ok" without a result, a result that lacks a part, has a wrong shape, or is half written.
TEST_F(ExternalCandidateTest, ABadResultFileIsAFinding) {
  const std::string ok = R"(; echo '{"ok": true}')";
  for (const std::string& body : {":" + ok, answer("no-gradient"), answer("wrong-shape"),
                                  "head -c 40 " + (folder_ / "right").string() + " > $result" + ok,
                                  "mkdir $result" + ok, ": > $result" + ok}) {
    ExternalCandidate candidate = program(body);
    EXPECT_EQ(kind(candidate.compute(tiny_case(), {})), Failure::Kind::bad_result) << body;
  }
}

TEST_F(ExternalCandidateTest, ErrorsAreFindingsUnlessTheCaseIsUnsupported) {
  ExternalCandidate failing = program(R"(echo '{"error": "out of memory"}')");
  EXPECT_EQ(kind(failing.compute(tiny_case(), {})), Failure::Kind::error);
  ExternalCandidate honest = program(R"(echo '{"error": "unsupported: bf16"}')");
  EXPECT_TRUE(std::holds_alternative<Unsupported>(honest.compute(tiny_case(), {})));
}

TEST_F(ExternalCandidateTest, ChangingTheCaseIsAFinding) {
  ExternalCandidate candidate = program("printf x >> $case; " + answer("right"));
  EXPECT_EQ(kind(candidate.compute(tiny_case(), {})), Failure::Kind::input_modified);
}

// Catches: a campaign that waits for ever for a process with a thread or a lock left over.
TEST_F(ExternalCandidateTest, AProcessThatDoesNotEndIsAFinding) {
  ExternalCandidate candidate(R"(read line; echo '{"ok": true}'; sleep 30)",
                              {milliseconds(5000), milliseconds(500), milliseconds(200)});
  candidate.declaration();
  const auto failure = candidate.reset();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, Failure::Kind::hang_at_exit);
}

// Catches: Ctrl-C while a request is on its way that is taken for a crash of the candidate. Signals arrive
// all the while, and the program reads late, so that what is sent does not fit between the two.
TEST(LineProcess, ASignalDoesNotBreakARequestOff) {
  struct sigaction handler {
  }, before{};
  handler.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGALRM, &handler, &before), 0);
  const itimerval often{{0, 20000}, {0, 20000}}, never{};
  LineProcess process("sleep 0.3; head -c 4000001 | wc -c");
  ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
  const bool written = process.write_line(std::string(4000000, 'x'), milliseconds(10000));
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_TRUE(written);
  std::string reply;
  ASSERT_EQ(process.read_line(reply, milliseconds(10000)), LineProcess::Read::line);
  EXPECT_NE(reply.find("4000001"), std::string::npos) << reply;
}

}  // namespace
}  // namespace fljsd

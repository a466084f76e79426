// SPDX-License-Identifier: Apache-2.0
// The program as its users meet it: arguments in, exit status, standard output and standard error out.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "reference/rounding.h"
#include "verify/cases/families.h"
#include "verify/cases/result.h"
#include "verify/cases/safetensors.h"
#include "verify/tests/subprocess.h"

namespace fljsd {
namespace {

using nlohmann::json;
using test::file_text;
using test::Finished;
using test::Process;
using test::TemporaryFolder;

Finished run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), FLJSD_PROGRAM);
  return Process(std::move(arguments)).wait();
}

// What every refusal looks like: status 2, nothing on stdout, one sentence on stderr.
void expect_refusal(const Finished& finished, const std::string& part) {
  EXPECT_EQ(finished.status, 2) << finished.err;
  EXPECT_EQ(finished.out, "");
  EXPECT_EQ(finished.err.rfind("fljsd: ", 0), 0u) << finished.err;
  EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
  EXPECT_NE(finished.err.find(part), std::string::npos) << finished.err;
}

// A small case of a family, written by the program itself.
std::string generated(const TemporaryFolder& folder, const std::string& family,
                      const std::vector<std::string>& more = {}) {
  const std::string path = folder / (family + ".safetensors");
  std::vector<std::string> arguments = {"gen",     family, "--tokens", "6", "--hidden", "16",
                                        "--vocab", "50",   "--seed",   "3", "--out",    path};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Finished finished = run(arguments);
  EXPECT_EQ(finished.status, 0) << finished.err;
  return path;
}

const char* const names[] = {"audit", "gen", "loss", "fuzz", "check"};

// Fault: a command without help, or help that is an error.
TEST(Cli, HelpOfTheProgramAndOfEveryCommand) {
  const Finished help = run({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const std::string name : names) {
    EXPECT_NE(help.out.find("\n  " + name), std::string::npos);
    const Finished command = run({name, "--help"});
    EXPECT_EQ(command.status, 0);
    EXPECT_NE(command.out.find("--json"), std::string::npos);
    EXPECT_EQ(command.err, "");
    std::istringstream lines(command.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }
  EXPECT_EQ(run({"--version"}).out.rfind("fljsd ", 0), 0u);
  EXPECT_EQ(run({}).status, 2);
}

// Fault: a mistyped name that is silently accepted, or refused without saying what was meant.
TEST(Cli, TyposAreRefusedWithTheNearestName) {
  expect_refusal(run({"adit"}), "did you mean 'audit'?");
  expect_refusal(run({"tset"}), "did you mean 'test'?");
  expect_refusal(run({"frobnicate"}), "--help");
  expect_refusal(run({"loss", "x", "--teir", "double"}), "did you mean --tier?");
  expect_refusal(run({"gen", "published", "--token=3"}), "did you mean --tokens?");
  expect_refusal(run({"loss", "x", "--tier", "dubble"}), "did you mean 'double'?");
  expect_refusal(run({"gen", "publishd", "--tokens", "1", "--hidden", "1", "--vocab", "1", "--out", "x"}),
                 "did you mean 'published'?");
  expect_refusal(run({"audit", "--family", "lm-lik"}), "did you mean 'lm-like'?");
  expect_refusal(run({"audit", "--candidate", "ligre"}),
                 "--candidate: there is no candidate 'ligre'; did you mean");
  expect_refusal(run({"audit", "--full", "--candidate", "exec:false"}),
                 "exec:false did not introduce itself");
  expect_refusal(run({"check", "a", "b", "--class", "float-64"}), "did you mean 'float64'?");
}

// Fault: bad values or missing arguments that crash, or that are taken for something else.
TEST(Cli, BadArgumentsAreRefused) {
  expect_refusal(run({"gen", "published", "--tokens", "many"}), "--tokens takes a whole number");
  expect_refusal(run({"gen", "published", "--tokens", "-4"}), "at least 0, not '-4'");
  expect_refusal(run({"gen", "published", "--beta", "1.5"}), "from 0 to 1, not '1.5'");
  expect_refusal(run({"gen", "published", "--tokens", "4"}), "--hidden");
  expect_refusal(run({"gen"}), "--list");
  expect_refusal(run({"loss"}), "CASE is required");
  expect_refusal(run({"loss", "a", "b"}), "takes no argument 'b'");
  expect_refusal(run({"loss", "x", "--out"}), "--out needs a value");
  expect_refusal(run({"audit", "--quick", "--full"}), "--quick");
}

// Fault: an option that is given twice, or cannot have an effect, and is ignored; a number that 64 bits do
// not hold and another one in its place.
TEST(Cli, NothingThatWasTypedIsIgnored) {
  const TemporaryFolder folder;
  const std::string out = folder / "case";
  const auto gen = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"gen", "--out", out});
    return run(more);
  };
  const std::string recipe = "family=kaiming tokens=1 hidden=1 vocab=2";
  expect_refusal(gen({"kaiming", "--tokens", "1", "--tokens", "2"}), "--tokens may be given only once");
  expect_refusal(gen({"--recipe", recipe, "--beta", "0.5"}), "--beta");
  expect_refusal(gen({"--recipe", recipe, "kaiming"}), "FAMILY");
  expect_refusal(gen({"--recipe", recipe + " tokens=2"}), "tokens is given twice");
  expect_refusal(gen({"kaiming", "--ignore-index", "99999999999999999999"}),
                 "to 9223372036854775807, not '9");
  expect_refusal(gen({"kaiming", "--ignore-index", "1.5"}), "takes a whole number from -9223372036854775808");
  expect_refusal(gen({"kaiming", "--seed", "18446744073709551615"}), "from 0 to 9223372036854775807");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(gen({"--recipe", recipe + " student_input[0]=1 student_input[0]=2"}).status, 0);
  EXPECT_EQ(gen({"--ignore-index", "-9223372036854775808", "kaiming", "--tokens", "1", "--hidden", "1",
                 "--vocab", "2"})
                .status,
            0);
}

// Fault: a command that replaces the file it reads, or writes two reports over each other, or a file named
// "-".
TEST(Cli, OutputsAreFilesOfTheirOwn) {
  const TemporaryFolder folder;
  const std::string path = generated(folder, "kaiming"), before = file_text(path);
  expect_refusal(run({"loss", path, "--out", path}), "--out names the file of CASE");
  std::filesystem::create_symlink(path, folder / "link");
  expect_refusal(run({"loss", path, "--out", folder / "link"}), "--out names the file of CASE");
  EXPECT_EQ(file_text(path), before);
  const std::string report = folder / "report", same = folder / "./report";
  expect_refusal(run({"audit", "--full", "--json", report, "--csv", same}),
                 "--json and --csv name this file");
  expect_refusal(run({"reproduce", "--committed", "--json", "no-such-file", "--svg", "./no-such-file"}),
                 "--json and --svg name this file");
  expect_refusal(run({"audit", "--full", "--html", "-"}), "--html takes a file, not '-'");
  expect_refusal(run({"reproduce", "--committed", "--svg", "-"}), "--svg takes a file, not '-'");
  expect_refusal(run({"loss", path, "--out", "-"}), "--out takes a file, not '-'");
  EXPECT_FALSE(std::filesystem::exists(report));
}

// Fault: an unreadable file that is a crash, a wrong answer, or half a page of text.
TEST(Cli, UnreadableFilesAreRefused) {
  const TemporaryFolder folder;
  expect_refusal(run({"loss", folder / "none"}), "none");
  expect_refusal(run({"loss", folder.path().string()}), "folder");
  const std::string whole = file_text(generated(folder, "kaiming"));
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, std::size_t{40}, whole.size() - 1}) {
    std::ofstream(folder / "cut") << whole.substr(0, size);
    expect_refusal(run({"loss", folder / "cut"}), "cut");
    expect_refusal(run({"check", folder / "kaiming.safetensors", folder / "cut"}), "cut");
  }
}

// Three tokens over five entries, with this student input in bf16.
Case three_tokens(const std::vector<double>& student_input) {
  CaseSpec spec;
  spec.family = 2;
  spec.tokens = 3;
  spec.student_hidden = static_cast<Index>(student_input.size()) / 3;
  spec.vocab = 5;
  Case c = make_case(spec);
  c.student_input = make_tensor(DType::bf16, {3, spec.student_hidden}, student_input);
  return c;
}

// Fault: NaN in a file that is refused, lost, or printed as something that JSON readers choke on.
TEST(Cli, NanAndInfinityAreStringsInJson) {
  const TemporaryFolder folder;
  std::vector<double> input(12, 0.5);
  input[5] = std::numeric_limits<double>::quiet_NaN();
  write_case(folder / "nan", three_tokens(input));
  for (const std::string tier : {"double", "certified"}) {
    const Finished finished = run({"loss", folder / "nan", "--tier", tier, "--json"});
    EXPECT_EQ(finished.status, 0) << finished.err;
    const json answer = json::parse(finished.out);
    EXPECT_EQ(answer["loss"]["value"], "nan");
    EXPECT_EQ(answer["loss"]["hex"], "nan");
    const json& token = answer["token_loss"][1];
    EXPECT_EQ(tier == "double" ? token : token["value"], "nan");
    EXPECT_EQ(answer["token_loss"].size(), 3u);
  }
}

// Fault: a norm of a gradient that forgets the NaN of one token at the next one, and says 0.
TEST(Cli, NormOfAGradientWithNanIsNan) {
  const TemporaryFolder folder;
  Case c = three_tokens({std::numeric_limits<double>::quiet_NaN(), 1, 1});
  c.labels = {0, c.options.ignore_index, c.options.ignore_index};  // whose gradients are 0
  write_case(folder / "nan", c);
  const Finished finished = run({"loss", folder / "nan", "--grad", "--json"});
  EXPECT_EQ(json::parse(finished.out)["norms"]["student_input_grad"], "nan") << finished.out;
}

// Fault: an answer of which nothing is judged that counts as kept.
TEST(Cli, NothingJudgedIsNoVerdict) {
  const TemporaryFolder folder;
  const Case c = three_tokens({std::numeric_limits<double>::infinity(), 1, 1});  // gradients are not judged
  write_case(folder / "case", c);
  CaseResult result;
  result.student_input_grad = make_tensor(DType::f64, {3, 1}, {0, 0, 0});
  write_result(folder / "result", result);
  const Finished finished = run({"check", folder / "case", folder / "result"});
  EXPECT_EQ(finished.status, 2) << finished.out << finished.err;
  EXPECT_NE(finished.err.find("no verdict"), std::string::npos) << finished.err;
}

// Fault: JSON that lacks what is promised, or numbers that do not read back as the same double.
TEST(Cli, JsonOfLossReadsBackExactly) {
  const TemporaryFolder folder;
  const std::string path = generated(folder, "lm-like", {"--beta", "0.25", "--temperature", "2"});
  const Case c = read_case(path);
  const Result truth = linear_jsd<double>(c.problem(), c.options);

  const json answer = json::parse(run({"loss", path, "--json"}).out);
  EXPECT_EQ(answer["schema"], 1);
  EXPECT_EQ(answer["tier"], "double");
  EXPECT_EQ(answer["tokens"], 6);
  EXPECT_EQ(answer["counted"], 6);
  EXPECT_EQ(answer["loss"]["value"].get<double>(), *truth.loss);
  EXPECT_EQ(std::strtod(answer["loss"]["hex"].get<std::string>().c_str(), nullptr), *truth.loss);
  EXPECT_EQ(answer["token_loss"].get<std::vector<double>>(), truth.token_loss);

  const json certified = json::parse(run({"loss", path, "--json", "--tier", "certified"}).out);
  const double nearest = certified["loss"]["rounds_to"].get<double>();
  EXPECT_EQ(certified["loss"]["value"].get<double>(), nearest);
  // Decimals rounded outward: their nearest doubles enclose the nearest double of what they enclose.
  EXPECT_LE(std::strtod(certified["loss"]["lo"].get<std::string>().c_str(), nullptr), nearest);
  EXPECT_GE(std::strtod(certified["loss"]["hi"].get<std::string>().c_str(), nullptr), nearest);
  EXPECT_TRUE(certified["token_loss"][0].contains("lo"));

  const std::string none = generated(folder, "kaiming", {"--reduction", "none"});
  const json per_token = json::parse(run({"loss", none, "--json"}).out);
  EXPECT_TRUE(per_token["loss"].is_null());
  EXPECT_EQ(per_token["token_loss"].size(), 6u);
}

// Fault: a chain of commands that does not fit together, or a check that convicts the truth.
TEST(Cli, GenLossCheckRoundTrip) {
  const TemporaryFolder folder;
  for (const std::string family : {"published", "lm-like", "padded-vocab", "near-identical"}) {
    const std::string path = generated(folder, family, {"--teacher-hidden", "9"});
    for (const std::string tier : {"double", "certified"}) {
      const std::string result = folder / "result";
      EXPECT_EQ(run({"loss", path, "--grad", "--tier", tier, "--out", result}).status, 0);
      const CaseResult written = read_result(result);
      EXPECT_EQ(written.student_weight_grad->dtype, DType::f64);
      const Finished checked = run({"check", path, result, "--class", "float64"});
      EXPECT_EQ(checked.status, 0) << checked.out << checked.err;
      EXPECT_NE(checked.out.find("Kept"), std::string::npos);
    }
  }
}

// Fault: a check that passes wrong answers, NaN first of all.
TEST(Cli, CheckConvictsWrongAnswers) {
  const TemporaryFolder folder;
  const std::string path = generated(folder, "kaiming");
  const Case c = read_case(path);
  const Result truth = linear_jsd<double>(c.problem(), c.options, Wanted::all());
  CaseResult right;
  right.loss = truth.loss;
  right.token_loss = make_tensor(DType::f64, {6}, truth.token_loss);
  const auto& gradient = truth.student_input_grad;
  const std::vector<double> values(gradient.data(), gradient.data() + gradient.size());
  right.student_input_grad = make_tensor(DType::f64, {6, 16}, values);
  const std::string result = folder / "result";
  const auto status_of = [&](const CaseResult& r, const std::string& accuracy_class) {
    write_result(result, r);
    return run({"check", path, result, "--class", accuracy_class}).status;
  };
  EXPECT_EQ(status_of(right, "float64"), 0);

  for (const double wrong : {std::numeric_limits<double>::quiet_NaN(), *truth.loss * 1.5, 0.0}) {
    CaseResult r = right;
    r.loss = wrong;
    EXPECT_EQ(status_of(r, "bf16-logits"), 1) << wrong;
  }
  CaseResult zero_gradient = right;
  zero_gradient.student_input_grad = make_tensor(DType::f64, {6, 16}, std::vector<double>(96, 0.0));
  EXPECT_EQ(status_of(zero_gradient, "bf16-logits"), 1);
  std::vector<double> one_off = values;
  one_off[17] += 1e-6;
  CaseResult slightly = right;
  slightly.student_input_grad = make_tensor(DType::f64, {6, 16}, one_off);
  EXPECT_EQ(status_of(slightly, "float64"), 1);

  // In JSON: the same outcome, and what other answers would score.
  const Finished finished = run({"check", path, result, "--class", "float64", "--json"});
  EXPECT_EQ(finished.status, 1);
  const json report = json::parse(finished.out);
  EXPECT_EQ(report["pass"], false);
  EXPECT_EQ(report["bf16_logits_error"].size(), report["rows"].size());

  // A loss where there is none must not go by unjudged.
  const std::string none = generated(folder, "lm-like", {"--reduction", "none"});
  CaseResult only_loss;
  only_loss.loss = 1;
  write_result(result, only_loss);
  expect_refusal(run({"check", none, result}), "the reduction of the case is 'none'");

  // The wrong shape is bad input, not a finding.
  CaseResult misshapen = right;
  misshapen.token_loss = make_tensor(DType::f64, {5}, std::vector<double>(5));
  write_result(result, misshapen);
  expect_refusal(run({"check", path, result}), "token_loss");
}

// Fault: an audit whose files cannot be read, whose status contradicts its report, or that hides what
// rounding costs.
TEST(Cli, AuditOfASmallSize) {
  const TemporaryFolder folder;
  const std::string json_path = folder / "a.json", csv_path = folder / "a.csv";
  const Finished finished = run({"audit", "--family", "published", "--family", "3", "--tokens", "6",
                                 "--hidden", "32", "--vocab", "200", "--json", json_path, "--csv", csv_path});
  EXPECT_EQ(finished.err, "");
  const json report = json::parse(file_text(json_path));
  EXPECT_EQ(report["schema"], 1);
  EXPECT_EQ(finished.status, report["pass"] == true ? 0 : 1);
  EXPECT_EQ(finished.status, 0) << finished.out;
  EXPECT_NE(report["run"]["command"].get<std::string>().find("--vocab 200"), std::string::npos);
  ASSERT_EQ(report["in_depth"].size(), 2u);
  for (const json& workload : report["in_depth"]) {
    EXPECT_EQ(workload["candidates"].size(), rounding_models().size());
    // ‖truth‖/‖truth‖, the two summed separately: squares and sums of 6 × 32 elements, two roots, one
    // quotient.
    EXPECT_NEAR(workload["zero_answer"]["student_input_grad_relative_l2"].get<double>(), 1.0,
                2 * (6 * 32 + 4) * 0x1p-53);
    ASSERT_EQ(workload["certified"].size(), 2u);
    for (const json& token : workload["certified"]) EXPECT_EQ(token["kept"], true);
    const auto gradient_error = [&](const std::string& name) -> double {
      for (const json& candidate : workload["candidates"])
        if (candidate["name"] == name) return candidate["errors"]["student_input_grad_relative_l2"];
      return NAN;
    };
    // Each rounds strictly more than the next.
    EXPECT_GT(gradient_error("torch-eager-bf16"), gradient_error("torch-compile"));
    EXPECT_GT(gradient_error("torch-compile"), gradient_error("fp32-logits"));
    EXPECT_GT(gradient_error("fp32-logits"), gradient_error("float64"));
    // The last step of every way has the candidate's own error.
    for (const json& way : workload["attribution"]) {
      const json& last = way["steps"].back()["total"]["student_input_grad_relative_l2"];
      EXPECT_EQ(last.get<double>(), gradient_error(way["candidate"]));
    }
  }
  EXPECT_NE(finished.out.find("Summary"), std::string::npos);
  EXPECT_NE(finished.out.find("torch-eager-bf16, step by step"), std::string::npos);
  EXPECT_EQ(finished.out.find('\033'), std::string::npos) << "colours belong on terminals only";

  std::istringstream lines(file_text(csv_path));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  const auto columns = std::count(line.begin(), line.end(), ',');
  EXPECT_EQ(line.rfind("part,family,", 0), 0u);
  int rows = 0;
  for (; std::getline(lines, line); ++rows) {
    bool quoted = false;
    EXPECT_EQ(columns, std::count_if(line.begin(), line.end(),
                                     [&](char ch) {
                                       if (ch == '"') quoted = !quoted;
                                       return ch == ',' && !quoted;
                                     }))
        << line;
  }
  EXPECT_GT(rows, 100);

  const Finished on_stdout = run({"audit", "--family", "published", "--candidate", "liger", "--tokens", "2",
                                  "--hidden", "8", "--vocab", "30", "--json", "-"});
  EXPECT_EQ(json::parse(on_stdout.out)["in_depth"][0]["candidates"].size(), 1u);
}

// Fault: minutes of work, and only then the message that the report cannot be written. (The audit asked for
// here would take an hour.)
TEST(Cli, UnwritablePathsAreRefusedBeforeTheWork) {
  const TemporaryFolder folder;
  expect_refusal(run({"audit", "--full", "--json", folder / "no/such/folder"}), "cannot be written");
  expect_refusal(run({"audit", "--full", "--csv", folder.path().string()}), "cannot be written");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  const std::string path = generated(folder, "kaiming");
  expect_refusal(run({"loss", path, "--out", folder / "no/such/folder"}), "cannot be written");
}

// Fault: a message, or a status that looks like a finding, when a pager is closed; silence when a disk is
// full.
TEST(Cli, ClosedPipesAndFullDisks) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  close(ends[0]);
  Process piped({FLJSD_PROGRAM, "gen", "--list"}, "", ends[1]);
  close(ends[1]);
  const Finished finished = piped.wait();
  EXPECT_EQ(finished.status, -SIGPIPE);
  EXPECT_EQ(finished.err, "");

  Process full({FLJSD_PROGRAM, "gen", "--list"}, "/dev/full");
  const Finished refused = full.wait();
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("standard output"), std::string::npos) << refused.err;
}

// Fault: an interrupted command that goes on, or that leaves pieces of files behind.
TEST(Cli, InterruptsLeaveNothingBehind) {
  const TemporaryFolder folder;
  Process audit({FLJSD_PROGRAM, "audit", "--full", "--json", folder / "report.json"});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  audit.signal(SIGINT);
  EXPECT_EQ(audit.wait().status, -SIGINT);

  // Interrupted as soon as the file begins to grow.
  Process gen({FLJSD_PROGRAM, "gen", "kaiming", "--tokens", "1", "--hidden", "4096", "--vocab", "20000",
               "--out", folder / "case"});
  while (std::filesystem::is_empty(folder.path())) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  gen.signal(SIGINT);
  const int status = gen.wait().status;
  if (status == 0) {
    EXPECT_NO_THROW(read_case(folder / "case"));  // it was faster: the file is whole
  } else {
    EXPECT_EQ(status, -SIGINT);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

}  // namespace
}  // namespace fljsd

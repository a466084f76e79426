// SPDX-License-Identifier: Apache-2.0
// One line on standard error that says what is being done and for how long: only when that is a terminal, and
// only for work that takes longer than two seconds.
#pragma once

#include <memory>
#include <string>

namespace fljsd {

class Progress {
 public:
  Progress();
  ~Progress();  // erases the line

  // What is being done from now on.
  void step(const std::string& what);
  // Erases the line until the next step(), so that results can be printed.
  void pause();

 private:
  struct Line;
  std::unique_ptr<Line> line_;  // absent when there is no terminal
};

}  // namespace fljsd

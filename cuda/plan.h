// SPDX-License-Identifier: Apache-2.0
// What the files of the C interface share: the plan behind fljsd_plan, exceptions turned into a status and a
// sentence, and structures that may be older than the library.
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "cuda/failure.h"
#include "cuda/stage.h"

struct fljsd_plan {
  fljsd::cuda::Settings settings;
  std::unique_ptr<fljsd::cuda::Stage> stage;
  std::string description;

  void describe() {
    description = "stage " + settings.stage + " on " + settings.device.name + "\n" + stage->describe();
  }
};

namespace fljsd::cuda {

// Of this thread's last call; fljsd_last_error() returns it.
std::string& last_error();

// Runs body; an exception becomes the status to return.
template <class Body>
fljsd_status guard(const Body& body) noexcept {
  try {
    last_error().clear();
    body();
    return FLJSD_OK;
  } catch (const Failure& failure) {
    last_error() = failure.what();
    return failure.status();
  } catch (const std::bad_alloc&) {
    last_error() = "The host is out of memory.";
    return FLJSD_CUDA_ERROR;
  } catch (const std::exception& error) {
    last_error() = error.what();
    return FLJSD_CUDA_ERROR;
  }
}

template <class T>
const T& required(const char* what, const T* pointer) {
  if (pointer == nullptr) fail(FLJSD_INVALID_ARGUMENT, what, " is null, but it is required.");
  return *pointer;
}

inline fljsd_pass check_pass(std::int32_t pass) {
  if (pass != FLJSD_FORWARD && pass != FLJSD_FORWARD_BACKWARD) {
    fail(FLJSD_INVALID_ARGUMENT, "pass is ", pass,
         ", but it must be FLJSD_FORWARD (0) or FLJSD_FORWARD_BACKWARD (1).");
  }
  return static_cast<fljsd_pass>(pass);
}

// A structure that a caller compiled against this or an older version gives: fields it does not have are
// zero.
template <class T>
T read_struct(const char* what, const T* given) {
  const std::uint64_t size = required(what, given).struct_size;
  constexpr std::uint64_t least = 2 * sizeof(std::uint64_t);
  if (size < least || size > sizeof(T)) {
    fail(FLJSD_INVALID_ARGUMENT, what, "->struct_size is ", size,
         ", but it must be the structure's size, at most ", sizeof(T), " in this version of the library.");
  }
  T result{};
  std::memcpy(static_cast<void*>(&result), given, static_cast<std::size_t>(size));
  return result;
}

// Fills in the defaults and copies the caller's part of them.
template <class T>
void init_struct(const char* what, T* given, std::uint64_t struct_size, T defaults) {
  required(what, given);
  if (struct_size < sizeof(std::uint64_t) || struct_size > sizeof(T)) {
    fail(FLJSD_INVALID_ARGUMENT, "struct_size is ", struct_size,
         ", but it must be the structure's size, at most ", sizeof(T), " in this version of the library.");
  }
  defaults.struct_size = struct_size;
  std::memcpy(static_cast<void*>(given), &defaults, static_cast<std::size_t>(struct_size));
}

// Refuses settings whose device is not the current one; creates the CUDA context.
void require_current_device(const Settings& settings);

}  // namespace fljsd::cuda

# Compiler launcher, warnings and sanitizers: the interface target quern_flags.
find_program(QUERN_CCACHE ccache)
if(QUERN_CCACHE AND NOT CMAKE_C_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${QUERN_CCACHE})
endif()

add_library(quern_flags INTERFACE)
target_compile_options(quern_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers -fno-math-errno
                       -ffp-contract=off)
# Instrumented code makes GCC's flow warnings (truncation, uninitialised) unreliable: there they only warn.
if(QUERN_WERROR AND NOT ((QUERN_SANITIZE OR QUERN_TSAN) AND CMAKE_C_COMPILER_ID STREQUAL GNU))
  target_compile_options(quern_flags INTERFACE -Werror)
endif()
target_compile_definitions(quern_flags INTERFACE _GNU_SOURCE QUERN_VERSION="${PROJECT_VERSION}")
target_include_directories(quern_flags INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/runtime ${CMAKE_CURRENT_SOURCE_DIR})

if(QUERN_SANITIZE AND QUERN_TSAN)
  message(FATAL_ERROR "QUERN_SANITIZE and QUERN_TSAN exclude each other: use two build folders")
endif()
if(QUERN_SANITIZE)
  target_compile_options(quern_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all -O1
                         -fno-omit-frame-pointer)
  target_link_options(quern_flags INTERFACE -fsanitize=address,undefined)
elseif(QUERN_TSAN)
  target_compile_options(quern_flags INTERFACE -fsanitize=thread -O1 -fno-omit-frame-pointer)
  target_link_options(quern_flags INTERFACE -fsanitize=thread)
endif()
if(QUERN_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "QUERN_FUZZ needs clang: cmake -DCMAKE_C_COMPILER=clang")
  endif()
  target_compile_options(quern_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Kernels on the host (docs/emulation.md). emu_gen writes the programs of the op cases and of some golden models as C++;
# they are compiled with the compiler's memory hooks and linked with the emulator.
if(QUERN_SANITIZE OR QUERN_TSAN)
  return() # the emulator has checks of its own, with hooks that the sanitizers' run-time libraries would take
endif()
include(CheckLanguage)
check_language(CXX)
if(NOT CMAKE_CXX_COMPILER)
  message(FATAL_ERROR "The tests of kernels need a C++ compiler. On Debian or Ubuntu: apt-get install g++")
endif()
enable_language(CXX)
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  message(FATAL_ERROR "The tests of kernels need GCC's hooks: -DCMAKE_CXX_COMPILER=g++")
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(emu_tools ${CMAKE_CURRENT_SOURCE_DIR}/tools)
set(emu_goldens ${CMAKE_CURRENT_SOURCE_DIR}/data/goldens)
if(QUERN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${QUERN_CCACHE})
endif()
set(emu_dir ${CMAKE_CURRENT_SOURCE_DIR}/emu)
set(emu_out ${CMAKE_CURRENT_BINARY_DIR}/emu_programs)
set(emu_shards 48)
set(QUERN_EMU_MODELS "llama;qwen3;gemma3;gemma4-e2b;gemma3n;minicpm3" CACHE STRING "Golden models that run whole under emulation")
set(emu_models ${QUERN_EMU_MODELS})
set(emu_warnings -Wall -Wextra -Wno-missing-field-initializers)

# The cases, and what writes their programs; with the suffix _all every triple of levels and every step of the shapes.
function(emu_cases_library suffix exhaustive)
  add_library(emu_tests_common${suffix} STATIC ${emu_dir}/emu_cases.c ${emu_dir}/emu_case_ops.c
              ${emu_dir}/emu_case_special.c ${emu_dir}/emu_case_chains.c ${emu_dir}/emu_case_shapes.c ${emu_dir}/emu_source.c)
  target_link_libraries(emu_tests_common${suffix} PUBLIC room_cuda room_cpu shape_model)
  target_include_directories(emu_tests_common${suffix} PUBLIC ${emu_dir})
  target_compile_definitions(emu_tests_common${suffix} PRIVATE EMU_EXHAUSTIVE=${exhaustive}
                             EMU_SHAPE_MODELS="${CMAKE_CURRENT_BINARY_DIR}/shape_models")
  add_executable(emu_gen${suffix} ${emu_dir}/emu_gen.c ${emu_dir}/emu_collect.c)
  target_link_libraries(emu_gen${suffix} PRIVATE emu_tests_common${suffix})
endfunction()
emu_cases_library("" 0)
emu_cases_library(_all 1)
set_target_properties(emu_tests_common_all emu_gen_all PROPERTIES EXCLUDE_FROM_ALL TRUE)

add_library(emu_core OBJECT ${emu_dir}/emu_run.cpp ${emu_dir}/emu_warp.cpp ${emu_dir}/emu_memory.cpp
            ${emu_dir}/emu_hooks.cpp ${emu_dir}/emu_tensor.cpp ${emu_dir}/emu_traffic.cpp)
target_include_directories(emu_core PRIVATE ${CMAKE_SOURCE_DIR}/runtime ${emu_dir})
target_compile_options(emu_core PRIVATE -std=c++17 -O2 -g1 ${emu_warnings})

# How kernels are compiled: hooks before every memory access, and arithmetic and alignment checks.
set(emu_kernel_options -std=c++17 -O1 -g1 -w -ffp-contract=off -fno-strict-aliasing -fno-exceptions -fno-rtti
    -fno-stack-protector -fno-tree-loop-distribute-patterns -fsanitize=thread --param=tsan-distinguish-volatile=1
    -fsanitize=alignment,shift,bounds,signed-integer-overflow,integer-divide-by-zero -DQN_EMULATED)

file(GLOB emu_kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernel_src/*.cu ${CMAKE_SOURCE_DIR}/kernel_src/*.cuh)
# emu_programs(SUFFIX OUT_DIR N_SHARD MODEL...): library emu_kernels<SUFFIX> of the cases' programs and the models'.
function(emu_programs suffix out shards)
  set(sources "")
  set(files "")
  math(EXPR last "${shards} - 1")
  foreach(i RANGE ${last})
    string(LENGTH ${i} digits)
    if(digits EQUAL 1)
      set(i 0${i})
    endif()
    list(APPEND sources ${out}/shard_${i}.cpp)
  endforeach()
  foreach(name IN LISTS ARGN)
    list(APPEND files ${out}/models/${name}.gguf)
  endforeach()
  list(APPEND files ${emu_goldens}/quants/llama-mix-Q4_K_M.gguf # 8-bit products, types mixed in one step
       ${CMAKE_CURRENT_SOURCE_DIR}/data/ring/llama-ring.gguf)
  set(models ${CMAKE_COMMAND} -E true)
  if(ARGN)
    set(models Python3::Interpreter ${emu_tools}/make_golden_models.py ${emu_goldens}/archs/spec.txt ${out}/models ${ARGN})
  endif()
  add_custom_command(OUTPUT ${out}/stamp BYPRODUCTS ${sources}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${out}/models
    COMMAND ${models}
    COMMAND emu_gen${suffix} ${CMAKE_SOURCE_DIR}/kernel_src ${out} ${shards} ${files}
    COMMAND ${CMAKE_COMMAND} -E touch ${out}/stamp
    DEPENDS emu_gen${suffix} ${emu_kernels} ${CMAKE_CURRENT_BINARY_DIR}/shape_models/stamp
            ${emu_tools}/make_golden_models.py ${emu_goldens}/archs/spec.txt ${CMAKE_CURRENT_SOURCE_DIR}/data/ring/llama-ring.gguf VERBATIM)
  add_custom_target(emu_programs${suffix} DEPENDS ${out}/stamp)
  add_dependencies(emu_programs${suffix} shape_models)
  set_source_files_properties(${sources} PROPERTIES GENERATED ON)
  add_library(emu_kernels${suffix} OBJECT ${sources})
  add_dependencies(emu_kernels${suffix} emu_programs${suffix})
  target_include_directories(emu_kernels${suffix} PRIVATE ${CMAKE_SOURCE_DIR}/kernel_src ${emu_dir})
  target_compile_options(emu_kernels${suffix} PRIVATE ${emu_kernel_options})
endfunction()
emu_programs("" ${emu_out} ${emu_shards} ${emu_models})
emu_programs(_all ${CMAKE_CURRENT_BINARY_DIR}/emu_programs_all 96)
set_target_properties(emu_kernels_all PROPERTIES EXCLUDE_FROM_ALL TRUE)

# emu_program(NAME SOURCE...): a test program with the emulator and the objects given by OBJECTS.
function(emu_executable name objects)
  add_executable(${name} ${ARGN} $<TARGET_OBJECTS:emu_core> $<TARGET_OBJECTS:${objects}>)
  string(REGEX MATCH "_all$" suffix ${name})
  target_link_libraries(${name} PRIVATE emu_tests_common${suffix})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()

# A case's run and its comparison, under emulation and on a card alike.
set(emu_run_sources ${emu_dir}/emu_ways.c ${emu_dir}/emu_ops_compare.c ${emu_dir}/emu_ops_reference.c ${emu_dir}/emu_exec.c
    ${emu_dir}/emu_operands.c ${emu_dir}/emu_q8.c)
set(emu_ops_sources ${emu_dir}/emu_ops.c ${emu_run_sources})
emu_executable(emu_ops emu_kernels ${emu_ops_sources})
set(emu_ops_tested embed select norm linear glu rope_kv attention mix mul rescale altup latent_kv argmax)
foreach(op IN LISTS emu_ops_tested)
  add_test(NAME emu-op-${op} COMMAND emu_ops ${op})
  set_tests_properties(emu-op-${op} PROPERTIES LABELS emu TIMEOUT ${hang})
endforeach()
add_test(NAME emu-coverage COMMAND emu_ops --list-is ${emu_ops_tested})
set_tests_properties(emu-coverage PROPERTIES LABELS emu TIMEOUT ${hang})

# The same cases, and large ones, on a card (tests/gpu/run.sh). It is built everywhere and run where there is a GPU.
set(gpu_dir ${CMAKE_CURRENT_SOURCE_DIR}/gpu)
add_executable(op_cases ${gpu_dir}/op_cases.c ${gpu_dir}/op_large.c ${gpu_dir}/card.c ${gpu_dir}/card_memory.c ${emu_run_sources})
target_include_directories(op_cases PRIVATE ${gpu_dir})
target_link_libraries(op_cases PRIVATE emu_tests_common quern_jansson)
add_dependencies(op_cases shape_models)
if(QUERN_NVRTC_TESTS) # on a card that computes next to nothing
  add_test(NAME gpu-op-cases COMMAND Python3::Interpreter ${emu_tools}/test_op_cases.py $<TARGET_FILE:op_cases>
                                     ${CMAKE_CURRENT_BINARY_DIR}/fake_gpu ${CMAKE_BINARY_DIR}/gpu-op-cases)
  set_tests_properties(gpu-op-cases PROPERTIES LABELS emu TIMEOUT ${hang})
endif()

# `cmake --build build --target emu_exhaustive`: every triple of levels, every step of the shapes; hours of one core.
emu_executable(emu_ops_all emu_kernels_all ${emu_ops_sources})
set_target_properties(emu_ops_all PROPERTIES EXCLUDE_FROM_ALL TRUE)
set(commands "")
foreach(op IN LISTS emu_ops_tested)
  list(APPEND commands COMMAND emu_ops_all ${op})
endforeach()
add_custom_target(emu_exhaustive ${commands} USES_TERMINAL VERBATIM)

# Kernels with a fault each that must be caught, and some without that must not.
file(GLOB emu_broken CONFIGURE_DEPENDS ${emu_dir}/broken/*.cu)
file(GLOB emu_sound CONFIGURE_DEPENDS ${emu_dir}/sound/*.cu)
set(text "#include \"emu_device.cuh\"\n#include \"reduce.cuh\"\n#include \"emu.h\"\n")
set(table "")
foreach(file IN LISTS emu_broken emu_sound)
  get_filename_component(name ${file} NAME_WE)
  string(APPEND text "namespace ${name} {\n#undef QN_KERNEL\n#define QN_KERNEL emu_${name}\n#include \"${file}\"\n"
                     "void call(const uint64_t *args)\n{\n    emu_call(emu_${name}, args);\n}\n}\n")
  string(APPEND table "    {1, \"${name}\", ${name}::call},\n")
endforeach()
file(GENERATE OUTPUT ${emu_out}/broken.cpp CONTENT
  "${text}static const emu_program table[] = {\n${table}    {0, \"\", nullptr},\n};\nstatic const bool added = emu_add_programs(table);\n")
add_library(emu_broken_kernels OBJECT ${emu_out}/broken.cpp)
target_include_directories(emu_broken_kernels PRIVATE ${CMAKE_SOURCE_DIR}/kernel_src ${emu_dir})
target_compile_options(emu_broken_kernels PRIVATE ${emu_kernel_options})
emu_executable(emu_broken emu_broken_kernels ${emu_dir}/emu_broken.c)
add_test(NAME emu-broken COMMAND emu_broken ${emu_broken} ${emu_sound})
emu_executable(emu_traffic emu_broken_kernels ${emu_dir}/emu_traffic.c)
add_test(NAME emu-traffic COMMAND emu_traffic ${emu_dir}/sound/strides.cu)
add_test(NAME emu-wrappers COMMAND Python3::Interpreter ${emu_dir}/check_wrappers.py ${CMAKE_SOURCE_DIR}/kernel_src/ptx.cuh
         ${emu_dir}/emu_ptx.cuh)
set_tests_properties(emu-broken emu-traffic emu-wrappers PROPERTIES LABELS emu TIMEOUT ${hang})

# The kernel that `bench --device-limits` reads memory with, which no plan has.
file(GENERATE OUTPUT ${emu_out}/read_limit.cpp CONTENT
  "#include \"emu_device.cuh\"\n#include \"emu.h\"\nnamespace spec {\nconstexpr int threads = 64;\n}\n#define QN_KERNEL emu_read_limit
#include \"read_limit.cu\"\nstatic void call(const uint64_t *args)\n{\n    emu_call(emu_read_limit, args);\n}
static const emu_program table[] = {{1, \"read_limit\", call}, {0, \"\", nullptr}};\nstatic const bool added = emu_add_programs(table);\n")
add_library(emu_limits_kernel OBJECT ${emu_out}/read_limit.cpp)
target_include_directories(emu_limits_kernel PRIVATE ${CMAKE_SOURCE_DIR}/kernel_src ${emu_dir})
target_compile_options(emu_limits_kernel PRIVATE ${emu_kernel_options})
emu_executable(emu_limits emu_limits_kernel ${emu_dir}/emu_limits.c)
add_test(NAME emu-limits COMMAND emu_limits)
set_tests_properties(emu-limits PROPERTIES LABELS emu TIMEOUT ${hang})

# Whole models through the decode, few-row and prefill lists, against the logits of another engine with rounding noise
# removed. The tolerance is the goldens' for f16 KV; prefill rounds operands to f16 as well: ten times that.
emu_executable(emu_model emu_kernels ${emu_dir}/emu_model.c ${emu_dir}/emu_exec.c ${emu_dir}/emu_operands.c)
file(READ ${emu_goldens}/archs/manifest.json manifest)
string(JSON count LENGTH "${manifest}")
math(EXPR last "${count} - 1")
foreach(i RANGE ${last})
  string(JSON name GET "${manifest}" ${i} name)
  if(name IN_LIST emu_models)
    string(JSON n_vocab GET "${manifest}" ${i} n_vocab)
    string(JSON tolerance GET "${manifest}" ${i} tol xlogits_f16_kv)
    set(modes decode few prefill mixed many)
    if(name MATCHES "^(llama|qwen3|gemma4-e2b)$")
      list(APPEND modes persistent) # the decode list once more, as one launch
    endif()
    if(name MATCHES "^(llama|qwen3|gemma3)$")
      list(APPEND modes mma padded) # prefill with quern's own products; with the grids of captured prompts
    endif()
    if(name STREQUAL gemma3n)
      set(modes prefill mixed) # 22 layers of 256 wide inputs are slow; mixed walks all three lists
    endif()
    foreach(mode IN LISTS modes)
      set(tolerance_of_mode ${tolerance})
      if(mode MATCHES "prefill|mixed|mma|padded")
        if(tolerance MATCHES "e-0*([0-9]+)$")
          math(EXPR exponent "${CMAKE_MATCH_1} - 1")
          string(REGEX REPLACE "e-.*" "e-${exponent}" tolerance_of_mode ${tolerance})
        else()
          string(REGEX REPLACE "^0\\.0" "0." tolerance_of_mode ${tolerance})
        endif()
      endif()
      add_test(NAME emu-model-${name}-${mode}
               COMMAND emu_model ${emu_out}/models/${name}.gguf ${emu_goldens}/archs/${name}.tokens
                       ${emu_goldens}/archs/${name}.xlogits ${n_vocab} ${tolerance_of_mode} ${mode})
      set_tests_properties(emu-model-${name}-${mode} PROPERTIES LABELS emu TIMEOUT ${hang})
    endforeach()
  endif()
endforeach()

# The device's samplers against the host's.
emu_executable(emu_sample emu_kernels ${emu_dir}/emu_sample.c ${emu_dir}/emu_exec.c ${emu_dir}/emu_operands.c)
target_link_libraries(emu_sample PRIVATE room_engine)
add_test(NAME emu-sample COMMAND emu_sample)
add_test(NAME emu-sample-large COMMAND emu_sample large)
set_tests_properties(emu-sample emu-sample-large PROPERTIES LABELS emu TIMEOUT ${hang})

# --check's machinery over the lowered lists: each step's kernels on its real inputs against the reference function.
emu_executable(emu_check emu_kernels ${emu_dir}/emu_check.c ${emu_dir}/emu_exec.c ${emu_dir}/emu_operands.c)
target_link_libraries(emu_check PRIVATE room_engine)
# 8-bit products as phases of one launch.
add_test(NAME emu-model-mix-Q4_K_M-persistent
         COMMAND emu_model ${emu_goldens}/quants/llama-mix-Q4_K_M.gguf ${emu_goldens}/quants/llama-mix-Q4_K_M.tokens
                 ${emu_goldens}/quants/llama-mix-Q4_K_M.xlogits 64 1.5e-4 persistent)
# And with the weights through a ring in shared memory (kernel_src/ring.cuh).
add_test(NAME emu-model-mix-Q4_K_M-ring
         COMMAND emu_model ${emu_goldens}/quants/llama-mix-Q4_K_M.gguf ${emu_goldens}/quants/llama-mix-Q4_K_M.tokens
                 ${emu_goldens}/quants/llama-mix-Q4_K_M.xlogits 64 1.5e-4 ring)
foreach(mode decode persistent ring)
  add_test(NAME emu-model-ring-${mode}
           COMMAND emu_model ${CMAKE_CURRENT_SOURCE_DIR}/data/ring/llama-ring.gguf ${CMAKE_CURRENT_SOURCE_DIR}/data/ring/llama-ring.tokens
                   ${CMAKE_CURRENT_SOURCE_DIR}/data/ring/llama-ring.xlogits 90 2e-4 ${mode})
  set_tests_properties(emu-model-ring-${mode} PROPERTIES LABELS emu TIMEOUT ${hang})
endforeach()
set_tests_properties(emu-model-mix-Q4_K_M-persistent emu-model-mix-Q4_K_M-ring PROPERTIES LABELS emu TIMEOUT ${hang})
add_test(NAME emu-check-mix-Q4_K_M COMMAND emu_check ${emu_goldens}/quants/llama-mix-Q4_K_M.gguf)
set_tests_properties(emu-check-mix-Q4_K_M PROPERTIES LABELS emu TIMEOUT ${hang})
foreach(name IN LISTS emu_models)
  add_test(NAME emu-check-${name} COMMAND emu_check ${emu_out}/models/${name}.gguf)
  set_tests_properties(emu-check-${name} PROPERTIES LABELS emu TIMEOUT ${hang})
endforeach()

# Kernels of decode at the ends of what may be chosen of them (runtime/cuda/knobs.h).
set(emu_knob_shards 4)
set(emu_knob_sources "")
foreach(i RANGE 1 ${emu_knob_shards})
  math(EXPR i "${i} - 1")
  list(APPEND emu_knob_sources ${emu_out}/knobs_0${i}.cpp)
endforeach()
add_executable(emu_knobs_gen ${emu_dir}/emu_knobs_gen.c ${emu_dir}/emu_collect.c ${emu_dir}/emu_knob_sets.c)
target_link_libraries(emu_knobs_gen PRIVATE emu_tests_common)
add_custom_command(OUTPUT ${emu_knob_sources}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${emu_out}
  COMMAND emu_knobs_gen ${CMAKE_SOURCE_DIR}/kernel_src ${emu_out} ${emu_knob_shards}
  DEPENDS emu_knobs_gen ${emu_kernels} VERBATIM)
add_library(emu_knob_kernels OBJECT ${emu_knob_sources})
target_include_directories(emu_knob_kernels PRIVATE ${CMAKE_SOURCE_DIR}/kernel_src ${emu_dir})
target_compile_options(emu_knob_kernels PRIVATE ${emu_kernel_options})
emu_executable(emu_knobs emu_knob_kernels ${emu_dir}/emu_knobs.c ${emu_dir}/emu_knob_sets.c ${emu_dir}/emu_exec.c ${emu_dir}/emu_operands.c)
add_test(NAME emu-knobs COMMAND emu_knobs)
set_tests_properties(emu-knobs PROPERTIES LABELS emu TIMEOUT ${hang})

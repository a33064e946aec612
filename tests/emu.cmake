# Kernels on the host (docs/emulation.md). emu_gen writes the programs of the op cases and of some golden models as C++;
# they are compiled with the compiler's memory hooks and linked with the emulator.
enable_language(CXX)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(emu_tools ${CMAKE_CURRENT_SOURCE_DIR}/tools)
set(emu_goldens ${CMAKE_CURRENT_SOURCE_DIR}/data/goldens)
if(QUERN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${QUERN_CCACHE})
endif()
set(emu_dir ${CMAKE_CURRENT_SOURCE_DIR}/emu)
set(emu_out ${CMAKE_CURRENT_BINARY_DIR}/emu_programs)
set(emu_shards 16)
set(emu_models llama qwen3 gemma3)
set(emu_warnings -Wall -Wextra -Wno-missing-field-initializers)

add_library(emu_tests_common STATIC ${emu_dir}/emu_cases.c ${emu_dir}/emu_case_ops.c ${emu_dir}/emu_source.c)
target_link_libraries(emu_tests_common PUBLIC room_cuda room_cpu)
target_include_directories(emu_tests_common PUBLIC ${emu_dir})
add_executable(emu_gen ${emu_dir}/emu_gen.c)
target_link_libraries(emu_gen PRIVATE emu_tests_common)

# The emulator. It is the same with and without -DQUERN_SANITIZE: it takes the place of a sanitizer's runtime.
add_library(emu_core OBJECT ${emu_dir}/emu_run.cpp ${emu_dir}/emu_warp.cpp ${emu_dir}/emu_memory.cpp
            ${emu_dir}/emu_hooks.cpp)
target_include_directories(emu_core PRIVATE ${CMAKE_SOURCE_DIR}/runtime ${emu_dir})
target_compile_options(emu_core PRIVATE -std=c++17 -O2 -g1 ${emu_warnings})

# How kernels are compiled: hooks before every memory access, and arithmetic and alignment checks.
set(emu_kernel_options -std=c++17 -O1 -g1 -w -ffp-contract=off -fno-strict-aliasing -fno-exceptions -fno-rtti
    -fno-stack-protector -fno-tree-loop-distribute-patterns -fsanitize=thread --param=tsan-distinguish-volatile=1
    -fsanitize=alignment,shift,bounds,signed-integer-overflow,integer-divide-by-zero -DQN_EMULATED)

file(GLOB emu_kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernel_src/*.cu ${CMAKE_SOURCE_DIR}/kernel_src/*.cuh)
set(emu_sources "")
set(emu_model_files "")
foreach(i RANGE 1 ${emu_shards})
  math(EXPR i "${i} - 1")
  string(LENGTH ${i} digits)
  if(digits EQUAL 1)
    set(i 0${i})
  endif()
  list(APPEND emu_sources ${emu_out}/shard_${i}.cpp)
endforeach()
foreach(name IN LISTS emu_models)
  list(APPEND emu_model_files ${emu_out}/models/${name}.gguf)
endforeach()
add_custom_command(OUTPUT ${emu_out}/stamp BYPRODUCTS ${emu_sources}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${emu_out}/models
  COMMAND Python3::Interpreter ${emu_tools}/make_golden_models.py ${emu_goldens}/archs/spec.txt ${emu_out}/models
          ${emu_models}
  COMMAND emu_gen ${CMAKE_SOURCE_DIR}/kernel_src ${emu_out} ${emu_shards} ${emu_model_files}
  COMMAND ${CMAKE_COMMAND} -E touch ${emu_out}/stamp
  DEPENDS emu_gen ${emu_kernels} ${emu_tools}/make_golden_models.py ${emu_goldens}/archs/spec.txt VERBATIM)
add_custom_target(emu_programs DEPENDS ${emu_out}/stamp)
set_source_files_properties(${emu_sources} PROPERTIES GENERATED ON)
add_library(emu_kernels OBJECT ${emu_sources})
add_dependencies(emu_kernels emu_programs)
target_include_directories(emu_kernels PRIVATE ${CMAKE_SOURCE_DIR}/kernel_src ${emu_dir})
target_compile_options(emu_kernels PRIVATE ${emu_kernel_options})

# emu_program(NAME SOURCE...): a test program with the emulator and the objects given by OBJECTS.
function(emu_executable name objects)
  add_executable(${name} ${ARGN} $<TARGET_OBJECTS:emu_core> $<TARGET_OBJECTS:${objects}>)
  target_link_libraries(${name} PRIVATE emu_tests_common)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()

emu_executable(emu_ops emu_kernels ${emu_dir}/emu_ops.c ${emu_dir}/emu_exec.c)
foreach(op embed select norm linear glu rope_kv attention mix argmax)
  add_test(NAME emu-op-${op} COMMAND emu_ops ${op})
  set_tests_properties(emu-op-${op} PROPERTIES LABELS emu TIMEOUT 600)
endforeach()
add_test(NAME emu-coverage COMMAND emu_ops --coverage ${CMAKE_SOURCE_DIR}/kernel_src embed select norm linear glu rope_kv
         attention mix argmax)
set_tests_properties(emu-coverage PROPERTIES LABELS emu TIMEOUT 60)

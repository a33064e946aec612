# Real models' shapes (tests/shapes/*.yaml), and what compiling their kernels asks for (docs/emulation.md).
if(QUERN_SANITIZE OR QUERN_TSAN)
  return() # minutes of compiles by NVRTC, which sanitizers do not see into
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(shape_dir ${CMAKE_CURRENT_SOURCE_DIR}/shapes)
set(shape_out ${CMAKE_CURRENT_BINARY_DIR}/shape_models)
set(golden_spec ${CMAKE_CURRENT_SOURCE_DIR}/data/goldens/archs/spec.txt)
file(GLOB shape_files CONFIGURE_DEPENDS ${shape_dir}/*.yaml)
add_custom_command(OUTPUT ${shape_out}/stamp
  COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tools/make_shape_models.py ${golden_spec} ${shape_dir} ${shape_out}
  COMMAND ${CMAKE_COMMAND} -E touch ${shape_out}/stamp
  DEPENDS ${shape_files} ${golden_spec} ${CMAKE_CURRENT_SOURCE_DIR}/tools/make_shape_models.py VERBATIM)
add_custom_target(shape_models DEPENDS ${shape_out}/stamp)
add_library(shape_model STATIC ${shape_dir}/shape_model.c)
target_link_libraries(shape_model PUBLIC room_codegen)
target_include_directories(shape_model PUBLIC ${shape_dir})

# The table. `compile_table_write` makes it anew after a change of a kernel; `compile_table_all` compiles every program
# that the models need, not only a sample that has every specialisation.
if(NOT QUERN_NVRTC_TESTS)
  return()
endif()
add_executable(compile_table ${shape_dir}/compile_table.c ${shape_dir}/table_programs.c)
target_link_libraries(compile_table PRIVATE shape_model room_cuda)
add_dependencies(compile_table shape_models)
set(compile_command compile_table ${shape_dir}/compile_table.tsv --cache ${CMAKE_CURRENT_BINARY_DIR}/compile_cache)
add_test(NAME compile-table COMMAND ${compile_command} ${shape_out} ${shape_out}/goldens)
set_tests_properties(compile-table PROPERTIES LABELS jit TIMEOUT 7200 PROCESSORS 2 SKIP_RETURN_CODE 77)
foreach(how write all)
  add_custom_target(compile_table_${how} COMMAND ${compile_command} --${how} ${shape_out} ${shape_out}/goldens
                    USES_TERMINAL VERBATIM)
endforeach()

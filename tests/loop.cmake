# A driver that keeps books, with the libraries that go with it, for tests of the host's part of decoding.
set(fake_run_dir ${CMAKE_CURRENT_BINARY_DIR}/fake_run)
foreach(lib cuda.so.1 nvrtc.so.13 nvrtc-builtins.so.13.0 cublasLt.so.13)
  string(REGEX REPLACE "\\.so.*" "" name ${lib})
  add_library(fake_run_${name} SHARED ${CMAKE_CURRENT_SOURCE_DIR}/fake/fake_run.c)
  target_include_directories(fake_run_${name} PRIVATE ${CMAKE_SOURCE_DIR}/runtime ${CMAKE_SOURCE_DIR})
  set_target_properties(fake_run_${name} PROPERTIES PREFIX "lib" OUTPUT_NAME ${lib} SUFFIX "" NO_SONAME ON
                        LIBRARY_OUTPUT_DIRECTORY ${fake_run_dir})
  add_dependencies(test_cuda_loop fake_run_${name})
  add_dependencies(test_prompt_graph fake_run_${name})
endforeach()
set_tests_properties(test_cuda_loop test_prompt_graph PROPERTIES ENVIRONMENT "LD_LIBRARY_PATH=${fake_run_dir}" FIXTURES_REQUIRED golden-models)

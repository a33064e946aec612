# Own declarations of CUDA's entry points against the real headers, where a toolkit is installed (compiled only).
find_path(CUDA_HEADERS cuda.h HINTS $ENV{CUDA_PATH}/include /usr/local/cuda/include)
find_path(CUBLASLT_HEADERS cublasLt.h HINTS $ENV{CUDA_PATH}/include /usr/local/cuda/include)
find_path(NVRTC_HEADERS nvrtc.h HINTS $ENV{CUDA_PATH}/include /usr/local/cuda/include)
if(CUDA_HEADERS AND CUBLASLT_HEADERS AND NVRTC_HEADERS)
  add_library(cuda_headers OBJECT ${CMAKE_CURRENT_SOURCE_DIR}/cuda_headers.c)
  target_include_directories(cuda_headers SYSTEM PRIVATE ${CUDA_HEADERS} ${CUBLASLT_HEADERS} ${NVRTC_HEADERS})
  target_link_libraries(cuda_headers PRIVATE quern_flags)
endif()
# test_jit* compile kernels with NVRTC, which needs no GPU; where there is none they fail, unless this says otherwise.
option(QUERN_NVRTC_TESTS "Run the tests that need NVRTC" ON)
if(NOT QUERN_NVRTC_TESTS)
  set_tests_properties(test_jit test_jit_faults test_jit_limits test_jit_wgmma PROPERTIES DISABLED ON)
endif()
# A driver for the tests of the driver's loader, found before a real one.
add_library(fake_cuda SHARED ${CMAKE_CURRENT_SOURCE_DIR}/fake/fake_cuda.c)
set_target_properties(fake_cuda PROPERTIES OUTPUT_NAME cuda SOVERSION 1 VERSION 1
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake_cuda)
add_dependencies(test_driver fake_cuda)
set_tests_properties(test_driver PROPERTIES
                     ENVIRONMENT "LD_LIBRARY_PATH=${CMAKE_CURRENT_BINARY_DIR}/fake_cuda")
if(QUERN_NVRTC_TESTS)
  add_test(NAME cli-cache-doctor COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/cache_case.sh $<TARGET_FILE:quern>
           $<TARGET_FILE:test_jit_faults> ${CMAKE_CURRENT_BINARY_DIR}/fake_cuda)
  set_tests_properties(cli-cache-doctor PROPERTIES LABELS cli TIMEOUT ${hang})
endif()
# A card without arithmetic, on which the host's CUDA path runs whole (fake/fake_gpu.c).
foreach(lib gpu/cuda/1 cublaslt/cublasLt/13)
  string(REPLACE "/" ";" words ${lib})
  list(GET words 0 source)
  list(GET words 1 soname)
  list(GET words 2 version)
  add_library(fake_${source} SHARED ${CMAKE_CURRENT_SOURCE_DIR}/fake/fake_${source}.c)
  target_include_directories(fake_${source} PRIVATE ${CMAKE_SOURCE_DIR}/runtime ${CMAKE_SOURCE_DIR})
  target_link_libraries(fake_${source} PRIVATE quern_flags)
  set_target_properties(fake_${source} PROPERTIES OUTPUT_NAME ${soname} SOVERSION ${version} VERSION ${version}
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake_gpu)
endforeach()
# Makes libraries missing that are there.
add_library(no_library SHARED ${CMAKE_CURRENT_SOURCE_DIR}/fake/no_library.c)
target_compile_definitions(no_library PRIVATE _GNU_SOURCE)
target_link_libraries(no_library PRIVATE ${CMAKE_DL_LIBS})
set_target_properties(no_library PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake_gpu)
# GPU rows of docs/bug-cases.md.
if(QUERN_NVRTC_TESTS)
  add_test(NAME cli_card COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tools/test_cli_card.py
                                 $<TARGET_FILE:quern> ${CMAKE_CURRENT_BINARY_DIR}/fake_gpu)
  add_test(NAME cli_tune COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tools/test_cli_tune.py
                                 $<TARGET_FILE:quern> ${CMAKE_CURRENT_BINARY_DIR}/fake_gpu)
  set_tests_properties(cli_card cli_tune PROPERTIES LABELS cli TIMEOUT ${hang})
  foreach(id B23 B24 B25 B26 B27 B28 B29)
    string(TOLOWER ${id} lower)
    add_test(NAME bug-${id} COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tools/bugs_gpu.py $<TARGET_FILE:quern>
                                    ${CMAKE_CURRENT_BINARY_DIR}/fake_gpu -k test_${lower}_)
    set_tests_properties(bug-${id} PROPERTIES LABELS "cli;bugs" TIMEOUT ${hang})
  endforeach()
endif()
if(QUERN_NVRTC_TESTS)
  add_test(NAME gpu-cases-fake-parity COMMAND gpu_cases parity ${CMAKE_BINARY_DIR}/goldens/archs/qwen3.gguf 1000)
  add_test(NAME gpu-cases-fake-flat COMMAND gpu_cases flat ${CMAKE_BINARY_DIR}/goldens/archs/qwen3.gguf 10000 4)
  set_tests_properties(gpu-cases-fake-parity gpu-cases-fake-flat PROPERTIES LABELS bugs TIMEOUT ${hang}
    FIXTURES_REQUIRED golden-models ENVIRONMENT "LD_LIBRARY_PATH=${CMAKE_CURRENT_BINARY_DIR}/fake_gpu;FAKE_TOKEN=0;QUERN_CACHE=${CMAKE_CURRENT_BINARY_DIR}/bug-cache")
endif()

# docs/bug-cases.md and docs/wants.md are whole and name tests that there are; where all of them are built.
if(QUERN_NVRTC_TESTS AND NOT QUERN_SANITIZE AND NOT QUERN_TSAN)
  add_test(NAME doc-tables
           COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tools/check_tables.py ${CMAKE_CTEST_COMMAND}
                   ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR})
  set_tests_properties(doc-tables PROPERTIES LABELS style TIMEOUT ${hang})
endif()

# The part of tests/gpu/run.sh that is a program; it is built everywhere and run where there is a GPU.
add_executable(gpu_cases ${CMAKE_CURRENT_SOURCE_DIR}/gpu/gpu_cases.c)
target_link_libraries(gpu_cases PRIVATE room_cli)
# The script itself, on a few models and the CPU, so that it is found broken before it stands before a GPU.
add_test(NAME gpu-script
         COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/gpu/run.sh ${CMAKE_BINARY_DIR} ${CMAKE_BINARY_DIR}/gpu-script
                 --backend cpu --models qwen3,gemma3,llama-mix-Q4_K_M)
set_tests_properties(gpu-script PROPERTIES LABELS cli TIMEOUT ${hang} FIXTURES_REQUIRED golden-models)
# Its processes, which run many commands each.
add_test(NAME gpu-workers
         COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tools/test_gpu_workers.py $<TARGET_FILE:gpu_cases>
                 $<TARGET_FILE:quern> ${CMAKE_CURRENT_SOURCE_DIR}/data/goldens ${CMAKE_BINARY_DIR}/gpu-workers)
set_tests_properties(gpu-workers PROPERTIES LABELS cli TIMEOUT ${hang})
# Every family at small sizes on the CPU: the files that are measured on a card can be made and run.
add_test(NAME gpu-families
         COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/gpu/families.py ${CMAKE_BINARY_DIR} ${CMAKE_BINARY_DIR}/gpu-families
                 --backend cpu --tiny --repeats 1)
set_tests_properties(gpu-families PROPERTIES LABELS cli TIMEOUT ${hang})
# Files of other tensor types, of which quant_kl.py measures the arithmetic; by a Python that has numpy, else skipped.
set(numpy_python ${Python3_EXECUTABLE})
foreach(candidate ${Python3_EXECUTABLE} /usr/bin/python3)
  execute_process(COMMAND ${candidate} -c "import numpy" RESULT_VARIABLE no_numpy OUTPUT_QUIET ERROR_QUIET)
  if(NOT no_numpy)
    set(numpy_python ${candidate})
    break()
  endif()
endforeach()
add_test(NAME gpu-quant-file
         COMMAND ${numpy_python} ${CMAKE_CURRENT_SOURCE_DIR}/tools/test_quant_file.py $<TARGET_FILE:quern>
                 ${CMAKE_CURRENT_SOURCE_DIR}/data/goldens/quants/llama-F16.gguf ${CMAKE_BINARY_DIR}/gpu-quant-file)
set_tests_properties(gpu-quant-file PROPERTIES LABELS cli TIMEOUT ${hang} SKIP_RETURN_CODE 77)

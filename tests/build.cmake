# What the build must give: one file that can be carried away, and memory within bounds.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME carry-binary
         COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/tools/carry_case.sh $<TARGET_FILE:quern>
                 ${CMAKE_CURRENT_SOURCE_DIR}/data/goldens/quants/llama-Q8_0.gguf "${QUERN_STATIC_DEPS}")
set_tests_properties(carry-binary PROPERTIES LABELS build TIMEOUT ${hang})
add_test(NAME memory-smollm2
         COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/tools/check_memory.py $<TARGET_FILE:quern>
                 ${PROJECT_SOURCE_DIR}/models/SmolLM2-135M-Instruct.Q4_1.gguf)
set_tests_properties(memory-smollm2 PROPERTIES LABELS real TIMEOUT ${hang})

# real-MODEL-PROMPT-ARITHMETIC, real-MODEL-perplexity-ARITHMETIC: real models (scripts/fetch-models.sh) against
# tests/data/real. Where a model was not fetched its tests fail.
set(real_data ${CMAKE_CURRENT_SOURCE_DIR}/data/real)
set(real_tools ${CMAKE_CURRENT_SOURCE_DIR}/tools)
set(real_max_kl_exact 1e-6)
set(real_max_kl_fast 2e-3)
set(real_chunks_exact 2) # of 512 tokens: the exact arithmetic is slow

add_executable(compare_real ${real_tools}/compare_real.c)
target_link_libraries(compare_real PRIVATE quern_flags m)

file(READ ${real_data}/manifest.json real_manifest)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${real_data}/manifest.json)
string(JSON real_count LENGTH "${real_manifest}")
math(EXPR real_last "${real_count} - 1")
foreach(i RANGE ${real_last})
  string(JSON record GET "${real_manifest}" ${i})
  string(JSON name GET "${record}" name)
  string(JSON file GET "${record}" file)
  string(JSON n_vocab GET "${record}" n_vocab)
  set(model ${CMAKE_SOURCE_DIR}/models/${file})
  string(JSON prompts LENGTH "${record}" prompts)
  math(EXPR last "${prompts} - 1")
  foreach(arithmetic exact fast)
    foreach(j RANGE ${last})
      string(JSON prompt GET "${record}" prompts ${j} name)
      string(JSON n_prompt GET "${record}" prompts ${j} n_prompt)
      math(EXPR first_row "${n_prompt} - 1")
      set(test real-${name}-${prompt}-${arithmetic})
      add_test(NAME ${test}
               COMMAND sh ${real_tools}/real_case.sh $<TARGET_FILE:quern> $<TARGET_FILE:compare_real> ${model}
                       ${real_data}/${name}-${prompt} ${CMAKE_BINARY_DIR}/real/${test}.logits ${n_vocab} ${first_row}
                       ${real_max_kl_${arithmetic}} ${arithmetic})
      set_tests_properties(${test} PROPERTIES LABELS real TIMEOUT ${hang} RUN_SERIAL TRUE)
    endforeach()
    if(arithmetic STREQUAL exact)
      set(reference f32)
      set(chunks ${real_chunks_exact})
      set(flag --exact)
    else()
      set(reference q)
      string(JSON chunks LENGTH "${record}" perplexity q after_chunk)
      set(flag "")
    endif()
    math(EXPR at "${chunks} - 1")
    string(JSON expected GET "${record}" perplexity ${reference} after_chunk ${at})
    set(test real-${name}-perplexity-${arithmetic})
    add_test(NAME ${test}
             COMMAND sh ${real_tools}/perplexity_case.sh $<TARGET_FILE:quern> ${model} ${real_data}/text-20k.txt
                     ${chunks} ${expected} ${flag})
    set_tests_properties(${test} PROPERTIES LABELS real TIMEOUT ${hang} RUN_SERIAL TRUE)
  endforeach()
endforeach()

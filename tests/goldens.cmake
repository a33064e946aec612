# golden-NAME-MODE-ARITHMETIC: logits of the CPU executor against those of another engine (tests/data/README.md).
# Every golden model whose architecture has a config in model_configs/ is run, and every quantised model of a type that
# is supported; a file that is missing makes its test fail.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(golden_data ${CMAKE_CURRENT_SOURCE_DIR}/data/goldens)
set(golden_models ${CMAKE_BINARY_DIR}/goldens/archs)
set(golden_tools ${CMAKE_CURRENT_SOURCE_DIR}/tools)
set(golden_types_refused IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S TQ1_0 TQ2_0 MXFP4)

add_executable(compare_logits ${golden_tools}/compare_logits.c)
target_link_libraries(compare_logits PRIVATE quern_flags m)

# The values of `architecture:` of all configs: one word, or a list in brackets on the same line.
file(GLOB configs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/model_configs/*.yaml)
set(golden_archs "")
foreach(config IN LISTS configs)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${config})
  file(STRINGS ${config} line REGEX "^architecture:" LIMIT_COUNT 1)
  string(REGEX REPLACE "^architecture:|#.*$" "" line "${line}")
  string(REGEX MATCHALL "[A-Za-z0-9_.-]+" names "${line}")
  if(NOT names)
    message(FATAL_ERROR "${config}: no 'architecture: NAME' or 'architecture: [NAME, ...]' line for the golden tests")
  endif()
  list(APPEND golden_archs ${names})
endforeach()

# golden_cases(NAME MODEL DIR N_VOCAB TOL_EXACT TOL_FAST): the tests of one model. `chunk` is the batch mode in chunks that
# neither the sequence nor a window is a multiple of.
function(golden_cases name model dir n_vocab tol_exact tol_fast)
  foreach(mode batch chunk per-token decode)
    foreach(arithmetic exact fast)
      if(arithmetic STREQUAL exact)
        set(how xlogits ${tol_exact} --exact)
      else()
        set(how logits ${tol_fast})
      endif()
      list(POP_FRONT how suffix tolerance)
      set(test golden-${name}-${mode}-${arithmetic})
      if(mode STREQUAL chunk)
        set(how batch -ub 5 ${how})
      else()
        set(how ${mode} ${how})
      endif()
      add_test(NAME ${test}
               COMMAND sh ${golden_tools}/golden_case.sh $<TARGET_FILE:quern> $<TARGET_FILE:compare_logits> ${model}
                       ${dir}/${name}.tokens ${dir}/${name}.${suffix} ${CMAKE_BINARY_DIR}/goldens/out/${test}.logits
                       ${n_vocab} ${tolerance} ${how})
      set_tests_properties(${test} PROPERTIES LABELS golden TIMEOUT ${hang})
      if(model MATCHES "^${golden_models}/")
        set_tests_properties(${test} PROPERTIES FIXTURES_REQUIRED golden-models)
      endif()
    endforeach()
  endforeach()
endfunction()

add_test(NAME golden-models
         COMMAND Python3::Interpreter ${golden_tools}/make_golden_models.py ${golden_data}/archs/spec.txt ${golden_models})
set_tests_properties(golden-models PROPERTIES FIXTURES_SETUP golden-models LABELS golden TIMEOUT ${hang})

set(golden_seen "")
foreach(set archs quants)
  file(READ ${golden_data}/${set}/manifest.json manifest)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${golden_data}/${set}/manifest.json)
  string(JSON count LENGTH "${manifest}")
  math(EXPR last "${count} - 1")
  foreach(i RANGE ${last})
    string(JSON record GET "${manifest}" ${i})
    string(JSON name GET "${record}" name)
    string(JSON arch GET "${record}" arch)
    string(JSON n_vocab GET "${record}" n_vocab)
    string(JSON tol_exact GET "${record}" tol xlogits_f32_kv)
    string(JSON tol_fast GET "${record}" tol logits)
    if(set STREQUAL archs)
      set(model ${golden_models}/${name}.gguf)
      list(FIND golden_archs ${arch} known)
    else()
      set(model ${golden_data}/quants/${name}.gguf)
      string(REGEX REPLACE "^llama-" "" type ${name})
      list(FIND golden_types_refused ${type} refused)
      math(EXPR known "-1 - ${refused}")
    endif()
    if(known GREATER -1)
      golden_cases(${name} ${model} ${golden_data}/${set} ${n_vocab} ${tol_exact} ${tol_fast})
      list(APPEND golden_seen ${arch})
    endif()
  endforeach()
endforeach()
if(NOT golden_seen)
  message(FATAL_ERROR "no golden model matches a config in model_configs/")
endif()

# A tensor type that is not supported is refused by tensor and type name, with nothing on stdout and no crash.
add_test(NAME golden-refused-type
         COMMAND sh ${golden_tools}/refused_case.sh "token_embd.*IQ1_S|IQ1_S.*token_embd" $<TARGET_FILE:quern> logits
                 ${golden_data}/quants/llama-IQ1_S.gguf --tokens ${golden_data}/quants/llama-IQ1_S.tokens
                 -o ${CMAKE_BINARY_DIR}/goldens/refused.logits --backend cpu)
set_tests_properties(golden-refused-type PROPERTIES LABELS golden TIMEOUT ${hang})

# The same models with other hyper-parameters, optional tensors and keys, in short: some logits of each.
add_test(NAME golden-variations
         COMMAND Python3::Interpreter ${golden_tools}/variation_cases.py $<TARGET_FILE:quern>
                 ${golden_data}/variations.tar.xz ${CMAKE_SOURCE_DIR}/model_configs 186)
set_tests_properties(golden-variations PROPERTIES LABELS golden TIMEOUT 1200)

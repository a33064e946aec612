typedef int qn_engine_room; /* keeps an empty room buildable; goes with the first source file */

typedef int qn_model_room; /* keeps an empty room buildable; goes with the first source file */

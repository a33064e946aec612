typedef int qn_text_room; /* keeps an empty room buildable; goes with the first source file */

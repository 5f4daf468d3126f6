// Package boundedtemplate executes Go templates that tenants write. A budget
// bounds the steps of an execution, the text that it writes and the text that
// its functions return, so that a template can neither fill the memory of a
// manager nor keep one of its workers busy. The same template over the same
// data always ends in the same result.
//
// Templates have the language's own comparisons, and, or, not, len, index and
// slice, and the functions in functions.go. The package refuses the other
// built-in functions, and the widths and precisions of printf.
package boundedtemplate

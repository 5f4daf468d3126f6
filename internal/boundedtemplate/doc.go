// Package boundedtemplate executes Go templates that tenants write. A budget
// limits the steps of an execution, the text that it writes and the text that
// its functions return, so that a template can neither fill the memory of a
// manager nor keep one of its workers busy. The same template with the same
// data always gives the same result.
//
// Templates can use the language's own comparisons, and, or, not, len, index
// and slice, and the functions in functions.go. The package rejects the other
// built-in functions, and widths and precisions in printf.
package boundedtemplate

package errs

import "fmt"

// kinded is an error of a kind that is not in its text.
type kinded struct {
	error
	kind error
}

func (k *kinded) Unwrap() []error { return []error{k.error, k.kind} }

// Errorf is like [fmt.Errorf]. The error also wraps kind, such as [ErrInvalid],
// whose text does not appear in it.
func Errorf(kind error, format string, args ...any) error {
	return &kinded{fmt.Errorf(format, args...), kind}
}

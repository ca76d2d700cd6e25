package core

import "fmt"

// kinded is an error of a kind that its text does not name.
type kinded struct {
	error
	kind error
}

func (k *kinded) Unwrap() []error { return []error{k.error, k.kind} }

// Errorf is like [fmt.Errorf], and the error that it returns is also kind, such as
// [ErrInvalid], whose own text is not in it.
func Errorf(kind error, format string, args ...any) error {
	return &kinded{fmt.Errorf(format, args...), kind}
}

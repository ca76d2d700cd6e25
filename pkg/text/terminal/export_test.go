package terminal

// AllowColors makes an output that is not a terminal have colors.
func AllowColors(o *Output) {
	o.Color = true
	if e, ok := o.Writer.(escaper); ok {
		*e.colors = true
	}
}

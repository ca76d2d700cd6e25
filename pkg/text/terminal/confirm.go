package terminal

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// Confirm writes a question to out and reports whether the next line of in is y
// or yes. Any other answer means no, including an empty line and the end of in.
//
// If ctx ends first, Confirm returns its error. It leaves a goroutine behind,
// since a read from a terminal cannot be interrupted.
func Confirm(ctx context.Context, in io.Reader, out io.Writer, question string) (bool, error) {
	fmt.Fprintf(out, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(in).ReadString('\n')
		if err != nil {
			fmt.Fprintln(out) // the answer has not ended the line of the question
		}
		answer <- line
	}()
	select {
	case line := <-answer:
		line = strings.ToLower(strings.TrimSpace(line))
		return line == "y" || line == "yes", nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// report has all measurements.
type report struct {
	Machine  machine `json:"machine"`
	Sections []part  `json:"sections"`
	// OK reports that no section failed and no figure exceeds its bound.
	OK bool `json:"ok"`
}

// part is the result of a section.
type part struct {
	Section string   `json:"section"`
	About   string   `json:"about"`
	Tables  []table  `json:"tables,omitempty"`
	Lines   []string `json:"lines,omitempty"`
	Failed  string   `json:"failed,omitempty"`
}

// table has a row for each measured thing. A row has a figure or nil for each
// column.
type table struct {
	title   string
	columns []column
	rows    []row
}

type column struct{ name, unit string }

type row struct {
	name    string
	figures []*figure
}

// figure is a number with an optional upper bound.
type figure struct {
	value float64
	bound *float64
}

func is(value float64) *figure { return &figure{value: value} }

func atMost(value, bound float64) *figure { return &figure{value, &bound} }

func (f *figure) verdict() string {
	switch {
	case f.bound == nil:
		return ""
	case f.value <= *f.bound:
		return "ok"
	}
	return "above"
}

func (p part) ok() bool {
	for _, t := range p.Tables {
		for _, r := range t.rows {
			for _, f := range r.figures {
				if f != nil && f.verdict() == "above" {
					return false
				}
			}
		}
	}
	return p.Failed == ""
}

// number formats a number with three significant digits, or with all digits
// before the point.
func number(v float64) string {
	switch {
	case v == float64(int64(v)) || v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func (f *figure) String() string {
	switch {
	case f == nil:
		return "-"
	case f.bound == nil:
		return number(f.value)
	}
	sign, verdict := "≤", f.verdict()
	if verdict != "ok" {
		sign, verdict = ">", "ABOVE"
	}
	return fmt.Sprintf("%s %s %s %s", number(f.value), sign, number(*f.bound), verdict)
}

func (p part) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s\n", p.Section, p.About)
	for _, line := range p.Lines {
		fmt.Fprintln(w, "  "+line)
	}
	for _, t := range p.Tables {
		fmt.Fprintln(w)
		columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
		cells := []string{"  " + t.title}
		for _, c := range t.columns {
			name := c.name
			if c.unit != "" {
				name += ", " + c.unit
			}
			cells = append(cells, name)
		}
		fmt.Fprintln(columns, strings.Join(cells, "\t"))
		for _, r := range t.rows {
			cells = []string{"  " + r.name}
			for _, f := range r.figures {
				cells = append(cells, f.String())
			}
			fmt.Fprintln(columns, strings.Join(cells, "\t"))
		}
		_ = columns.Flush() // errors of w are ignored
	}
	if p.Failed != "" {
		fmt.Fprintln(w, "  FAILED:", p.Failed)
	}
}

// MarshalJSON encodes each figure with its unit, by row and column.
func (t table) MarshalJSON() ([]byte, error) {
	type measured struct {
		Value   float64  `json:"value"`
		Unit    string   `json:"unit,omitempty"`
		Bound   *float64 `json:"bound,omitempty"`
		Verdict string   `json:"verdict,omitempty"`
	}
	type named struct {
		Name    string              `json:"name"`
		Figures map[string]measured `json:"figures"`
	}
	out := struct {
		Title string  `json:"title"`
		Rows  []named `json:"rows"`
	}{Title: t.title}
	for _, r := range t.rows {
		figures := make(map[string]measured)
		for i, f := range r.figures {
			if f != nil {
				figures[t.columns[i].name] = measured{f.value, t.columns[i].unit, f.bound, f.verdict()}
			}
		}
		out.Rows = append(out.Rows, named{r.name, figures})
	}
	return json.Marshal(out)
}

// machine describes the machine of a measurement.
type machine struct {
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	Go        string `json:"go"`
	Platform  string `json:"platform"`
	// Load is the load average of the last minute, on systems that have one. On
	// a busy machine the figures are not reliable.
	Load string `json:"load,omitempty"`
}

func thisMachine() machine {
	m := machine{Processor: "unknown", Cores: runtime.NumCPU(), Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
				m.Processor = strings.TrimSpace(value)
				break
			}
		}
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(text), " ")
	}
	return m
}

func (m machine) print(w io.Writer) {
	fmt.Fprintf(w, "%s, %d cores, %s, %s", m.Processor, m.Cores, m.Go, m.Platform)
	if m.Load != "" {
		fmt.Fprintf(w, ", load %s", m.Load)
	}
	fmt.Fprintln(w)
}

// times are measurements of the same thing.
type times []time.Duration

func (t times) min() time.Duration { return slices.Min(t) }

func (t times) median() time.Duration {
	sorted := slices.Sorted(slices.Values(t))
	return sorted[len(sorted)/2]
}

// percentile returns the value that n percent of the times do not exceed.
func (t times) percentile(n int) time.Duration {
	sorted := slices.Sorted(slices.Values(t))
	return sorted[min(len(sorted)*n/100, len(sorted)-1)]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

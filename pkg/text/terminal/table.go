package terminal

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/larder-registry/larder/pkg/text/printable"
)

// Column is one column of a table.
type Column struct {
	Title string
	// Min is the width to which the column can be shortened to make the table
	// fit. If 0, the column is never shortened. Addresses and versions have 0.
	Min int
	// Below columns leave a table that does not fit with its minimum widths. Each of
	// their cells is then wrapped below its row.
	Below bool
	// Shorten returns a cell in at most width columns. If nil, [CutEnd] is
	// used.
	Shorten func(cell string, width int) string
	// Optional columns are omitted, the last one first, if the table does not
	// fit otherwise.
	Optional bool
	// Right aligns cells to the right, for numbers.
	Right bool
	// Paint returns the color of a cell. If nil, cells are plain.
	Paint func(cell string) Color
}

func (c Column) shorten(cell string, width int) string {
	if c.Shorten == nil {
		return CutEnd(cell, width)
	}
	return c.Shorten(cell, width)
}

// shortened returns the width of a column whose cells are shortened to a width.
// It can be smaller than that width, for example for times without hours.
func (c Column) shortened(cells [][]string, column, width int) int {
	widest := text.StringWidth(c.Title)
	for _, row := range cells {
		cell := row[column]
		if text.StringWidth(cell) > width {
			cell = c.shorten(cell, width)
		}
		widest = max(widest, text.StringWidth(cell))
	}
	return min(widest, width)
}

// CutEnd shortens a cell to its beginning.
func CutEnd(cell string, width int) string {
	if text.StringWidth(cell) <= width {
		return cell
	}
	at := 0
	for i, r := range cell {
		if at += text.RuneWidth(r); at > width-1 {
			return cell[:i] + "…"
		}
	}
	return cell
}

// CutStart shortens a cell to its end, which distinguishes names such as
// addresses.
func CutStart(cell string, width int) string {
	over := text.StringWidth(cell) - width
	if over <= 0 {
		return cell
	}
	for i, r := range cell {
		if over -= text.RuneWidth(r); over < 0 {
			return "…" + cell[i+utf8.RuneLen(r):]
		}
	}
	return cell
}

const gap = "  "

// Table prints rows below the titles of their columns. Columns are two spaces
// apart, and no line ends in a space. Columns without any content are omitted.
func (o Output) Table(columns []Column, rows [][]string) {
	columns, rows = withContent(columns, printed(rows))
	columns, rows, below := o.below(columns, rows)
	columns, rows = o.fit(columns, rows)
	widths := o.widths(columns, rows)
	line := func(cells []string, paint bool) {
		var b strings.Builder
		for i, c := range columns {
			cell := cells[i]
			if text.StringWidth(cell) > widths[i] {
				cell = c.shorten(cell, widths[i])
			}
			pad := strings.Repeat(" ", max(0, widths[i]-text.StringWidth(cell)))
			if paint && c.Paint != nil {
				cell = o.Paint(cell, c.Paint(cells[i]))
			}
			if i > 0 {
				b.WriteString(gap)
			}
			if c.Right {
				cell, pad = pad+cell, ""
			}
			b.WriteString(cell + pad)
		}
		_, _ = fmt.Fprintln(o, strings.TrimRight(b.String(), " ")) // fails only if the reader has gone
	}
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.Title
	}
	line(titles, false)
	for i, row := range rows {
		line(row, true)
		for _, cell := range below[i] {
			narrow := o
			narrow.Width = max(o.Width-len(gap), 20)
			_, _ = fmt.Fprintln(o, gap+strings.ReplaceAll(narrow.Wrap(cell), "\n", "\n"+gap))
		}
	}
}

// below takes columns out of a table that does not fit otherwise, and returns their
// cells for each row. They are those with Below. If the others are still too wide, they
// are all but the first, in one line with their titles.
func (o Output) below(columns []Column, rows [][]string) (_ []Column, _ [][]string, cells [][]string) {
	cells = make([][]string, len(rows))
	if o.Width <= 0 || least(columns, rows) <= o.Width {
		return columns, rows, cells
	}
	for i := len(columns) - 1; i >= 0; i-- {
		if !columns[i].Below {
			continue
		}
		for j, row := range rows {
			if row[i] != "" {
				cells[j] = append([]string{row[i]}, cells[j]...)
			}
		}
		columns, rows = without(columns, i), cutColumn(rows, i)
	}
	if least(columns, rows) <= o.Width {
		return columns, rows, cells
	}
	for i := len(columns) - 1; i > 0; i-- {
		if columns[i].Optional {
			columns, rows = without(columns, i), cutColumn(rows, i)
		}
	}
	firsts := make([][]string, len(rows))
	for i, row := range rows {
		firsts[i] = row[:1]
		var others []string
		for j, cell := range row[1:] {
			if cell != "" && cell != "-" {
				others = append(others, strings.ToLower(columns[j+1].Title)+" "+cell)
			}
		}
		if len(others) > 0 {
			cells[i] = append([]string{strings.Join(others, ", ")}, cells[i]...)
		}
	}
	return columns[:1], firsts, cells
}

// least returns the smallest width of a table, without its optional columns.
func least(columns []Column, rows [][]string) int {
	width := -len(gap)
	for i, w := range natural(columns, rows) {
		if columns[i].Min > 0 {
			w = min(w, columns[i].Min)
		}
		if !columns[i].Optional {
			width += w + len(gap)
		}
	}
	return width
}

// fit omits optional columns until the table fits with its minimum widths.
func (o Output) fit(columns []Column, rows [][]string) ([]Column, [][]string) {
	for o.Width > 0 {
		least := -len(gap)
		last := -1
		for i, w := range natural(columns, rows) {
			if columns[i].Min > 0 {
				w = min(w, columns[i].Min)
			}
			least += w + len(gap)
			if columns[i].Optional {
				last = i
			}
		}
		if least <= o.Width || last < 0 {
			break
		}
		columns, rows = without(columns, last), cutColumn(rows, last)
	}
	return columns, rows
}

// printed returns rows in which every cell is one line without control
// characters.
func printed(rows [][]string) [][]string {
	all := make([][]string, len(rows))
	for i, row := range rows {
		all[i] = make([]string, len(row))
		for j, cell := range row {
			all[i][j] = printable.Escape(cell)
		}
	}
	return all
}

// withContent omits columns in which every cell is empty.
func withContent(columns []Column, rows [][]string) ([]Column, [][]string) {
	for i := len(columns) - 1; i >= 0; i-- {
		if !slices.ContainsFunc(rows, func(row []string) bool { return row[i] != "" }) {
			columns, rows = without(columns, i), cutColumn(rows, i)
		}
	}
	return columns, rows
}

func cutColumn(rows [][]string, column int) [][]string {
	cut := make([][]string, len(rows))
	for i, row := range rows {
		cut[i] = without(row, column)
	}
	return cut
}

func without[T any](all []T, i int) []T {
	return append(append([]T{}, all[:i]...), all[i+1:]...)
}

// natural returns the widths of columns if nothing is shortened.
func natural(columns []Column, rows [][]string) []int {
	widths := make([]int, len(columns))
	for i, c := range columns {
		widths[i] = text.StringWidth(c.Title)
		for _, row := range rows {
			widths[i] = max(widths[i], text.StringWidth(row[i]))
		}
	}
	return widths
}

// widths returns the widths at which the table fits. The widest columns become
// narrower. If a column needs less than its width, for example for times
// without hours, the other columns receive the rest.
func (o Output) widths(columns []Column, rows [][]string) []int {
	full := natural(columns, rows)
	if o.Width <= 0 {
		return full
	}
	// Each column with its own Shorten is measured once, at its turn.
	most := slices.Clone(full)
	for i, c := range columns {
		widths := o.level(columns, most)
		if c.Shorten != nil && widths[i] < most[i] {
			most[i] = c.shortened(rows, i, widths[i])
		}
	}
	return o.level(columns, most)
}

// level shrinks the widest column that can be shortened until the table fits.
func (o Output) level(columns []Column, most []int) []int {
	widths := slices.Clone(most)
	total := len(gap) * (len(columns) - 1)
	for _, w := range widths {
		total += w
	}
	for ; total > o.Width; total-- {
		widest := -1
		for i, c := range columns {
			if c.Min > 0 && widths[i] > c.Min && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

package web

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/larder-registry/larder/pkg/registry"
)

// pagination describes one page of a long list.
type pagination struct {
	// From and To are the numbers of the first and the last row, from 1. Total
	// is the number of all rows, and Things is what they are.
	From, To, Total int
	Things          string
	// Next is the path of the next page, or empty, and NextCount the number of
	// its rows.
	Next      string
	NextCount int
}

// paginate returns the page of a list that a URL requests with the parameter
// after, which is the number of rows before it. If there are not that many rows
// any more, it returns the first page. The error is registry.ErrInvalid for
// anything but a number.
func paginate(u *url.URL, total, size int, things string) (pagination, error) {
	after := 0
	if text := u.Query().Get("after"); text != "" {
		var err error
		if after, err = strconv.Atoi(text); err != nil || after < 0 {
			return pagination{}, fmt.Errorf("%w parameter after", registry.ErrInvalid)
		}
		if after >= total {
			after = 0
		}
	}
	p := pagination{From: min(after+1, total), To: min(after+size, total), Total: total, Things: things}
	if p.To < total {
		p.Next, p.NextCount = withParam(u, "after", strconv.Itoa(p.To)), min(size, total-p.To)
	}
	return p, nil
}

// before returns the number of rows before the page.
func (p pagination) before() int { return max(p.From-1, 0) }

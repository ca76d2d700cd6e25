package registry

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/opentofu/svchost"
	"golang.org/x/net/idna"

	"github.com/larder-registry/larder/pkg/text/printable"
)

// Host is the host of a registry, with its port unless that is 443. It is in
// the form for TLS, URLs and comparison: ASCII in lower case, with Punycode, and
// without a dot at its end.
type Host string

// ParseHost parses a host that people or programs write, such as
// Registry.Example.com.:443. The name can be in Unicode or in Punycode. An IPv6
// address is not a host, because clients accept none. Errors are [ErrInvalid].
func ParseHost(s string) (Host, error) {
	name, port, hasPort := strings.Cut(s, ":")
	number, portErr := strconv.ParseUint(port, 10, 16)
	ascii, err := idna.Lookup.ToASCII(name)
	h := Host(strings.TrimSuffix(ascii, "."))
	switch {
	case strings.Contains(s, "://"):
		err = errors.New("it is a URL")
	case strings.Count(s, ":") > 1:
		err = errors.New("clients accept no IPv6 address as the host of a registry")
	case err != nil:
	case hasPort && (portErr != nil || number == 0):
		err = errors.New("its port is not a number from 1 to 65535")
	default:
		// The name must be one that clients accept in the form for display.
		again, failed := svchost.ForComparison(h.Display())
		if failed != nil || string(again) != string(h) || strings.HasSuffix(string(h), ".") {
			err = errors.New("clients accept no such name")
		}
	}
	if err != nil {
		return "", WithHint(fmt.Errorf("%w host %.100q: %s", ErrInvalid, s, printable.Mark(err.Error(), 200)),
			"Write it like registry.example.com or registry.example.com:8443.")
	}
	if hasPort && number != 443 {
		h += Host(":" + strconv.FormatUint(number, 10))
	}
	return h, nil
}

// CanonicalHost returns a host in the form for comparison. A text that [ParseHost]
// refuses, such as an IPv6 address, is in lower case and without a dot at its end.
func CanonicalHost(text string) Host {
	if h, err := ParseHost(text); err == nil {
		return h
	}
	return Host(strings.TrimSuffix(strings.ToLower(text), "."))
}

// CanonicalName is [CanonicalHost] without the port.
func CanonicalName(text string) Host { return CanonicalHost((&url.URL{Host: text}).Hostname()) }

// Name returns the host without its port.
func (h Host) Name() string {
	name, _, _ := strings.Cut(string(h), ":")
	return name
}

// URL returns https://HOST.
func (h Host) URL() string { return "https://" + string(h) }

// Display returns the host in Unicode, as people write it in addresses and in
// the clients' configuration. Clients reject Punycode there.
func (h Host) Display() string { return svchost.ForDisplay(string(h)) }

// Audience returns an audience of identity tokens in the form for comparison. If
// it is https://HOST, the result has the form of [Host.URL].
func Audience(text string) string {
	if host, isURL := strings.CutPrefix(text, "https://"); isURL {
		if h, err := ParseHost(host); err == nil {
			return h.URL()
		}
	}
	return text
}

package registry_test

import (
	"errors"
	"fmt"

	"github.com/larder-registry/larder/pkg/registry"
)

// ParseAddress recognizes the kind of an address by its form. Errors are
// ErrInvalid.
func ExampleParseAddress() {
	for _, text := range []string{"acme/vpc/aws", "acme/cloud", "registry.opentofu.org/hashicorp/random", "acme"} {
		switch a, err := registry.ParseAddress(text); a := a.(type) {
		case registry.Module:
			fmt.Printf("module %s for %s\n", a.Name, a.System)
		case registry.Provider:
			fmt.Printf("provider %s of %s\n", a.Type, a.Namespace)
		case registry.MirrorAddress:
			fmt.Printf("provider %s of another registry, %s\n", a.Name, a.Hostname)
		default:
			fmt.Println(errors.Is(err, registry.ErrInvalid))
		}
	}
	// Output:
	// module vpc for aws
	// provider cloud of acme
	// provider random of another registry, registry.opentofu.org
	// true
}

// A version may omit the minor and patch numbers. Errors are ErrInvalid.
func ExampleParseVersion() {
	v, err := registry.ParseVersion("1.2")
	fmt.Println(v, err)
	_, err = registry.ParseVersion("latest")
	fmt.Println(errors.Is(err, registry.ErrInvalid))
	// Output:
	// 1.2.0 <nil>
	// true
}

package docs_test

import (
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/programs"
)

// follow follows the steps of an empty registry's page in another folder, as a
// person does. Each block of the page is a file with its number.
const follow = `
mkdir -p "a folder" elsewhere app && cd "a folder"
SERVE
[ -z "CREDENTIAL" ] || token=$(larder token create --name first-reader --scope 'read:**' | grep -om1 'larder_[0-9A-Za-z]\{20,\}')
cd ../elsewhere
page() { curl -sS --fail --cacert "../a folder/larder-data/tls/ca.pem" ${token:+-H "Authorization: Bearer $token"} "https://ADDRESS/$1"; }
page index.md > page.md
grep -q 'This registry is empty' page.md
awk '/^FENCE/ { inside = !inside; if (inside) { n++; kind = substr($0, 4) } next } inside { print > (n "." kind) }' page.md
for block in *; do
  case $(cat "$block") in
    credentials*) sed "s/larder_…/$(grep -om1 'larder_[0-9A-Za-z]\{20,\}' ../output)/" "$block" > ~/.tofurc ;;
    module*) cp "$block" ../app/main.tf ;;
    *) [ "$block" = page.md ] || . "./$block" > ../output ;;
  esac
done
tofu -chdir=../app init
page modules/acme/hello/null.md | grep -q hello
`

// The steps on the page of an empty registry work as they are, whether or not
// reading needs a token.
func TestEmptyRegistry(t *testing.T) {
	t.Parallel()
	dir := installed(t)
	for name, flags := range map[string]string{"open": "", "with tokens": " --require-token"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, err := programs.ReserveAddress(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			serve := block{text: "larder serve" + flags + "\n"}.script("empty.md", address)
			script := strings.NewReplacer("SERVE", serve, "ADDRESS", address, "CREDENTIAL", flags, "FENCE", "```").Replace(follow)
			run(t, preamble+script, dir)
		})
	}
}

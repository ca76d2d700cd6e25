package web

import (
	"cmp"
	"html/template"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/larder-registry/larder/pkg/docs"
)

// minGrouped is the number of inputs up to which a page has no groups, and no field
// that filters them.
const minGrouped = 20

// inputGroup is a group of optional inputs, as their author grouped them. If there is
// only one, it has no title.
type inputGroup struct {
	ID, Title string
	Count     int
	Rows      template.HTML

	inputs []docs.Input
}

// groupsOf returns the groups of optional inputs by file and heading, in the order of
// their author. It returns nil if the author made too few groups, or too many.
func groupsOf(optional []docs.Input) (groups []inputGroup) {
	inputs := slices.Clone(optional)
	slices.SortStableFunc(inputs, func(a, b docs.Input) int {
		// The file variables.tf is before variables-network.tf.
		return cmp.Or(cmp.Compare(withoutType(a.File), withoutType(b.File)), cmp.Compare(a.Line, b.Line))
	})
	hasFiles := len(inputs) > 0 && inputs[0].File != inputs[len(inputs)-1].File
	at, files := make(map[[2]string]int), make(map[string]int)
	for _, in := range inputs {
		key := [2]string{in.File, in.Heading}
		i, found := at[key]
		if !found {
			i = len(groups)
			at[key] = i
			files[in.Heading]++
			groups = append(groups, inputGroup{})
		}
		groups[i].inputs = append(groups[i].inputs, in)
	}
	if len(groups) < 2 || 2*len(groups) > len(inputs) {
		return nil
	}
	used := make(map[string]bool)
	for i := range groups {
		first := groups[i].inputs[0]
		groups[i].Title = groupTitle(first, hasFiles && (first.Heading == "" || files[first.Heading] > 1))
		id := "inputs-" + slug(groups[i].Title)
		if used[id] {
			id = "inputs-" + strconv.Itoa(i)
		}
		used[id] = true
		groups[i].ID, groups[i].Count = id, len(groups[i].inputs)
	}
	return groups
}

func withoutType(file string) string {
	return strings.TrimSuffix(strings.TrimSuffix(file, ".json"), ".tf")
}

// groupTitle returns the title of the group of an input, with the file if other
// groups have the same heading.
func groupTitle(in docs.Input, withFile bool) string {
	file := path.Base(in.File)
	switch {
	case withFile && in.Heading != "":
		return file + ": " + in.Heading
	case withFile:
		return file
	}
	return cmp.Or(in.Heading, "Other")
}

// unslug matches what an anchor of a group does not have.
var unslug = regexp.MustCompile(`[^a-z0-9]+`)

func slug(title string) string {
	return strings.Trim(unslug.ReplaceAllString(strings.ToLower(title), "-"), "-")
}

// Grouped reports whether the optional inputs are in groups.
func (p inputs) Grouped() bool { return len(p.Groups) > 1 }

// HasFilter reports whether the page has a field that filters the inputs. A script
// shows the field.
func (p inputs) HasFilter() bool { return len(p.All) > minGrouped }

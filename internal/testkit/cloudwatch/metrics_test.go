package cloudwatch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/deployed/metrics"
)

// Lines are read like CloudWatch reads them. Lines that it would ignore are
// errors.
func TestReadMetrics(t *testing.T) {
	t.Parallel()
	const good = `{"_aws":{"Timestamp":1,"CloudWatchMetrics":[` +
		`{"Namespace":"n","Dimensions":[["D"]],"Metrics":[{"Name":"M","Unit":"Count"}]},` +
		`{"Namespace":"n","Dimensions":[[]],"Metrics":[{"Name":"L","Unit":"Milliseconds"}]}]},` +
		`"D":"d","M":1,"L":[2,3],"route":"x"}`
	got, err := ReadMetrics("n", "another line\n"+good+"\n"+good+"\n")
	if err != nil || len(got) != 2 ||
		fmt.Sprint(got[metrics.Series{Name: "M", Dimension: metrics.Dimension{Name: "D", Value: "d"}}],
			got[metrics.Series{Name: "L"}]) != "[1 1] [2 3 2 3]" {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range [][2]string{
		{`"n"`, `"other"`}, {`"D":"d"`, `"D":""`}, {`"D":"d"`, `"D":1`}, {`"D":"d"`, `"E":"d"`}, {`"M":1`,
			`"M":"1"`}, {`"M":1`, `"m":1`}, {`"M":1`, `"M":null`},
		{`[2,3]`, `[]`}, {`[2,3]`, `[2,"3"]`}, {`[2,3]`, `[` + strings.Repeat("1,", 100) + `1]`}, {`[["D"]]`,
			`[["D","route"]]`}, {`[["D"]]`, `[["D"],[]]`}, {`[[]]`, `[]`},
		{`"Timestamp":1`, `"Timestamp":0`}, {`"Timestamp":1`, `"Time":1`}, {`"route":"x"}`,
			`"route":"x"} {}`}, {`"route":"x"}`, `"route":"x"`},
	} {
		line := strings.Replace(good, bad[0], bad[1], 1)
		if got, err := ReadMetrics("n", line); line == good || err == nil {
			t.Errorf("%s for %s: %v", bad[1], bad[0], got)
		}
	}
}

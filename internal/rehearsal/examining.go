package rehearsal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/larder-registry/larder/pkg/doctor"
	"github.com/larder-registry/larder/pkg/stackdoctor"
)

// operatorScenario reads the registry and the stack as operators do. The stack
// must be healthy, and the audit trail must name the roles of operators.
func operatorScenario(ctx context.Context, r *Registry) error {
	// A rehearsal removes the keys of published providers, which verify reports.
	_, err := r.Larder(ctx, "verify", "--quick", "--json")
	if err != nil && !strings.Contains(err.Error(), `"findings"`) {
		return err
	}
	if r.Interrupt != nil {
		if err := r.Interrupt(ctx, "usage", "--since", "1h"); err != nil {
			return err
		}
	}
	if err := r.examine(ctx); err != nil {
		return err
	}
	return r.auditRoles(ctx)
}

// examine fails unless the doctor finds a healthy stack. Nobody is subscribed
// to the alarms of one in AWS.
func (r *Registry) examine(ctx context.Context) error {
	text, err := r.Examine(ctx)
	if err != nil {
		return err
	}
	report, err := readReport(text)
	if err != nil {
		return err
	}
	for _, s := range report.Steps {
		unsubscribed := r.CI == nil && s.Name == "alarm subscribers" && s.Outcome == doctor.Warning
		if s.Outcome != doctor.OK && s.Outcome != doctor.Skipped && !unsubscribed {
			return fmt.Errorf("larder doctor --stack finds %s: %s: %s", s.Outcome, s.Name, s.Result)
		}
	}
	return nil
}

// readReport reads what `larder doctor --stack --json` has printed.
func readReport(text string) (stackdoctor.Report, error) {
	var report stackdoctor.Report
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		return report, fmt.Errorf("what larder doctor prints: %w:\n%s", err, text)
	}
	if len(report.Steps) == 0 {
		return report, errors.New("larder doctor has looked at nothing")
	}
	return report, nil
}

// auditRoles finds that the changes of the rehearsal were made by the role that
// has the operator's policy alone, or by the one that has the policy for
// withdrawing besides.
func (r *Registry) auditRoles(ctx context.Context) error {
	text, err := r.Larder(ctx, "audit", "--since", "1h", "--json")
	if err != nil {
		return err
	}
	var trail struct {
		Entries []struct{ By, Action, Subject, Detail string }
	}
	if err := json.Unmarshal([]byte(text), &trail); err != nil {
		return fmt.Errorf("the audit trail: %w:\n%s", err, text)
	}
	seen := 0
	for _, e := range trail.Entries {
		if !strings.Contains(e.Subject+e.Detail, r.Namespace) || !strings.HasPrefix(e.By, "arn:") {
			continue // another rehearsal's, or through the registry's own endpoint
		}
		if e.Subject == "modules/"+r.Older {
			continue
		}
		seen++
		if !strings.Contains(e.By, ":assumed-role/"+operatorRole+"/") &&
			!strings.Contains(e.By, ":assumed-role/"+withdrawRole+"/") {
			return fmt.Errorf(
				"%s of %s by %s, and not by a role that has the operator's policy alone",
				e.Action,
				e.Subject,
				e.By,
			)
		}
	}
	if seen == 0 {
		return fmt.Errorf("the audit trail has no change by credentials of AWS:\n%s", text)
	}
	return nil
}

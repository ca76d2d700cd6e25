package registry

import "time"

// DownloadTime is how long the counts of a day, and the last use of a token,
// are stored on AWS. A total is stored that long after its last download.
const DownloadTime = 400 * 24 * time.Hour

// OtherCallers stands for the callers for whom the counts of a version and a
// day have no room.
const OtherCallers = "other callers"

// Downloads is how often something was downloaded.
type Downloads struct {
	Count int64 `json:"count"`
	// Last is the time of the last download.
	Last time.Time `json:"last"`
}

// Plus returns the downloads of both.
func (d Downloads) Plus(more Downloads) Downloads {
	d.Count += more.Count
	if more.Last.After(d.Last) {
		d.Last = more.Last
	}
	return d
}

// DailyDownloads are the downloads of a version on a day in UTC.
type DailyDownloads struct {
	Day     time.Time
	Version Version
	// Callers has the downloads by the names of callers. The name of those
	// without a credential is empty.
	Callers map[string]Downloads
}

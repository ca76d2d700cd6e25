package pagetest

import "testing"

// One browser, one issuer and one registry serve all tests, because their start
// takes the longest.
func TestPages(t *testing.T) {
	t.Parallel()
	s := start(t)
	t.Run("walk", s.testWalk)
	t.Run("steps", s.testSteps)
	t.Run("clicks", s.testClicks)
	t.Run("issuer", s.testIssuer)
	t.Run("other sites", s.testOtherSites)
	t.Run("cookies", s.testCookies)
	t.Run("callback", s.testCallback)
	t.Run("next", s.testNext)
	t.Run("look", s.testLook)
	t.Run("without scripts", s.testWithoutScripts)
	t.Run("copy", s.testCopy)
	t.Run("not copied", s.testNotCopied)
	t.Run("menus", s.testMenus)
	t.Run("search key", s.testSearchKey)
	t.Run("print", s.testPrint)
	t.Run("sources", s.testSources)
	t.Run("login failure", s.testLoginFailure)
	t.Run("filter", s.testFilter)
	t.Run("target", s.testTarget)
	t.Run("forced colors", s.testForcedColors)
}
